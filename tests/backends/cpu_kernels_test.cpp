#include <gmock/gmock.h>

#include "backends/cpu/cpu_executable.h"
#include "tests/backends/cpu_rig.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;

class CpuKernels : public CpuRig {
 protected:
  void SetUp() override {
    open("cpu:1[memory=1M]");
    ExecutableImage image;
    image.name = std::string(kTestKernelsName);
    executable_ = std::move(device().load_executable(image)).value();
  }
  void TearDown() override {
    executable_.reset();
    CpuRig::TearDown();
  }
  LaunchRequest fill(const Buffer& buffer, int64_t count) {
    LaunchRequest request;
    request.kernel = executable_->find_kernel("fill_f32").value();
    request.arguments[0] =
        KernelArgument::of(BufferView{const_cast<Buffer*>(&buffer), 0, buffer.size()});
    request.arguments[1] = KernelArgument::of(count);
    request.arguments[2] = KernelArgument::of(1.0f);
    request.argument_count = 3;
    request.label = "fill";
    return request;
  }
  std::unique_ptr<Executable> executable_;
};

TEST_F(CpuKernels, CountsBeyondTheBufferFailTheStream) {
  for (int64_t count : {int64_t{17}, int64_t{-1}}) {
    BufferHandle memory = device_buffer(64);
    auto stream = new_stream();
    ASSERT_TRUE(stream->launch(fill(*memory, count)).is_ok());
    Status status = stream->synchronize();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.site().verb, "launch");
    EXPECT_EQ(status.site().label, "fill");
    EXPECT_EQ(status.site().sequence, 1u);
  }
}

TEST_F(CpuKernels, ArgumentsOfTheWrongKindAreRefused) {
  BufferHandle memory = device_buffer(64);
  auto stream = new_stream();
  LaunchRequest request = fill(*memory, 16);
  request.argument_count = 2;
  auto refused = stream->launch(request);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("takes arguments 'pif', not 'pi'"));
  request.argument_count = 3;
  request.arguments[2] = KernelArgument::of(int64_t{1});
  refused = stream->launch(request);
  EXPECT_THAT(refused.status().message(), HasSubstr("not 'pii'"));
  EXPECT_TRUE(stream->status().is_ok());
  EXPECT_EQ(stream->last_submitted().sequence, 0u);
}

TEST_F(CpuKernels, KernelsOfOtherBackendsAreRefused) {
  class ForeignKernel final : public Kernel {
   public:
    std::string_view name() const override { return "foreign"; }
  } foreign;
  LaunchRequest request;
  request.kernel = &foreign;
  auto stream = new_stream();
  auto refused = stream->launch(request);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("another backend"));
}

TEST_F(CpuKernels, UnknownKernelsGetTheNearest) {
  auto found = executable_->find_kernel("fil_f32");
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(found.status().message(), HasSubstr("did you mean 'fill_f32'"));
}

}  // namespace
}  // namespace stagecoach
