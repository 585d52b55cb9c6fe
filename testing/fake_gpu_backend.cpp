#include "backends/gpu/gpu_backend.h"
#include "testing/fake_gpu_api.h"

namespace stagecoach {

template class GpuBackend<FakeApi>;

std::unique_ptr<Backend> make_fake_gpu_backend(FakeGpuDriver& driver,
                                               std::shared_ptr<GpuKernelTable> table,
                                               GpuLibraryOpener open_library) {
  return std::make_unique<GpuBackend<FakeApi>>(
      [&driver]() -> Result<FakeApi> { return FakeApi(driver); }, std::move(table),
      std::move(open_library));
}

}  // namespace stagecoach
