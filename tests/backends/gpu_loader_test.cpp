// The loaders: what is said where a driver is missing, is no driver, or has no card.
#include <gtest/gtest.h>

#include "backends/gpu/gpu_error_map.h"
#include "core/shared_library.h"
#if STAGECOACH_CUDA
#include "backends/cuda/cuda_api.h"
#include "backends/cuda/cuda_backend.h"
#endif
#if STAGECOACH_HIP
#include "backends/hip/hip_api.h"
#include "backends/hip/hip_backend.h"
#endif

namespace stagecoach {
namespace {

testing::AssertionResult mentions(const Status& status, std::string_view part) {
  if (status.message().find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is missing in: " << status.to_string();
}

TEST(SharedLibrary, EveryNameTriedIsListed) {
  const std::vector<std::string> names = {"libstagecoach_no_such.so.1", "libstagecoach_no_such.so"};
  auto library = SharedLibrary::open(names);
  EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(mentions(library.status(), "libstagecoach_no_such.so.1 ("));
  EXPECT_TRUE(mentions(library.status(), ", libstagecoach_no_such.so ("));
}

TEST(SharedLibrary, TheFirstThatOpensIsTaken) {
  const std::vector<std::string> names = {"libstagecoach_no_such.so", "libc.so.6", "libm.so.6"};
  auto library = SharedLibrary::open(names);
  ASSERT_TRUE(library.is_ok()) << library.status().to_string();
  EXPECT_EQ(library->name(), "libc.so.6");
  EXPECT_NE(library->find("strlen"), nullptr);
  EXPECT_EQ(library->find("stagecoach_no_such_symbol"), nullptr);
}

TEST(GpuErrorMap, EveryNumberHasACode) {
  for (int error = 1; error < 2000; ++error) {
    EXPECT_NE(map_gpu_error(error), StatusCode::kOk) << error;
  }
  EXPECT_EQ(map_gpu_error(GpuErrorCode::kOutOfMemory), StatusCode::kResourceExhausted);
  EXPECT_EQ(map_gpu_error(GpuErrorCode::kIllegalAddress), StatusCode::kDeviceLost);
  EXPECT_EQ(map_gpu_error(GpuErrorCode::kNoBinary), StatusCode::kUnavailable);
  EXPECT_EQ(map_gpu_error(GpuErrorCode::kUnknown), StatusCode::kInternal);
}

#if STAGECOACH_CUDA
TEST(CudaLoader, AMissingLibraryListsTheNamesAndTheRemedy) {
  auto usual = cuda_library_names("");
  EXPECT_EQ(usual, (std::vector<std::string>{"libcuda.so.1", "libcuda.so"}));
  Status status = make_cuda_backend("libstagecoach_no_cuda.so")->availability();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(mentions(status, "libstagecoach_no_cuda.so ("));
  EXPECT_TRUE(mentions(status, "STAGECOACH_CUDA_LIBRARY"));
  EXPECT_TRUE(mentions(status, "cpu:1"));
}

TEST(CudaLoader, ALibraryThatIsNoDriverNamesTheMissingFunction) {
  Status status = make_cuda_backend("libc.so.6")->availability();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(mentions(status, "libc.so.6 has no function cu"));
}

TEST(CudaLoader, AbsentOpensAsUnavailable) {
  auto backend = make_cuda_backend("libstagecoach_no_cuda.so");
  EXPECT_TRUE(backend->list_devices().empty());
  DeviceSpec spec;
  spec.backend = "cuda";
  spec.which = "0";
  EXPECT_EQ(backend->open(spec).status().code(), StatusCode::kUnavailable);
}

TEST(CudaLoader, OnlyAnotherMajorVersionIsTooOld) {
  EXPECT_TRUE(CudaApi::driver_is_too_old(12090, 13000));
  EXPECT_FALSE(CudaApi::driver_is_too_old(13000, 13020));
  EXPECT_FALSE(CudaApi::driver_is_too_old(13020, 12000));
}
#endif

#if STAGECOACH_HIP
TEST(HipLoader, VersionedNamesComeFirst) {
  auto names = hip_library_names("");
  ASSERT_EQ(names.size(), 4u);
  EXPECT_EQ(names.back(), "libamdhip64.so");
  EXPECT_EQ(hip_library_names("mine.so"), std::vector<std::string>{"mine.so"});
}

TEST(HipLoader, AMissingLibraryListsTheNamesAndTheRemedy) {
  const std::vector<std::string> names = {"libstagecoach_no_hip.so.6", "libstagecoach_no_hip.so"};
  Status status = load_hip_functions(names).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  for (const std::string& name : names) EXPECT_TRUE(mentions(status, name + " ("));
  EXPECT_TRUE(mentions(status, "STAGECOACH_HIP_LIBRARY"));
}

// The vendor's own library, where it is installed: all our functions are there, and a machine
// without a card is told so.
TEST(HipLoader, TheRealLibraryHasEveryFunction) {
  auto usual = hip_library_names("");
  if (!SharedLibrary::open(usual).is_ok()) GTEST_SKIP() << "libamdhip64 is not installed";
  auto functions = load_hip_functions(usual);
  ASSERT_TRUE(functions.is_ok()) << functions.status().to_string();
  int count = 0;
  if (HipApi(functions.value()).device_count(&count) == 0 && count > 0) {
    GTEST_SKIP() << "this machine has a card";
  }
  Status status = make_hip_backend()->availability();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(mentions(status, "finds no card"));
  EXPECT_TRUE(mentions(status, "cpu:1"));
}
#endif

}  // namespace
}  // namespace stagecoach
