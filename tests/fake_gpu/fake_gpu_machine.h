#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/task_pool.h"
#include "hal/device.h"
#include "testing/fake_gpu_api.h"

namespace stagecoach {

/// A kernel table for the fake driver: every op is one launch, of a kernel that runs the CPU oracle
/// on the operands (fake device memory is host memory).
class OracleKernelTable final : public GpuKernelTable {
 public:
  explicit OracleKernelTable(FakeGpuDriver& driver);

  const GpuCode& code() const override { return code_; }
  Result<GpuLaunchPlan> plan(const OpCall& call, const GpuArch& arch) override;
  std::string_view provider(OpKind kind) const override;

  /// For tests of what a build lacks.
  GpuCode& edit_code() { return code_; }
  /// Scratch memory that every op asks for from now on.
  void set_workspace_bytes(ByteCount size) { workspace_bytes_ = size; }
  /// From now on every op asks for the scratch memory of the kernels that real cards run.
  void take_workspace_of_kernels() { takes_workspace_of_kernels_ = true; }
  /// From now on plans say of products and attention what libraries may compute of them.
  void describe_for_libraries() { describes_for_libraries_ = true; }

 private:
  static int run(void* user, const uint64_t* arguments);
  static void describe(const OpCall& call, GpuLaunchPlan& plan);
  /// Keeps `call` for its launch; where it is.
  /// A call and buffers of its own for its memory. A card knows addresses alone: what a failed
  /// stream still runs must not need buffers that have gone meanwhile.
  struct KeptCall {
    OpCall call;
    std::array<std::optional<Buffer>, OpCall::kMaxOutputs + OpCall::kMaxInputs> memory;

    void assign(const OpCall& given);
  };

  uint64_t keep(const OpCall& call);
  KeptCall& kept(uint64_t position);
  void give_back(uint64_t position);

  GpuCode code_;
  std::unique_ptr<TaskPool> pool_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<KeptCall>> calls_;  // queued or free; a launch carries its position
  std::vector<size_t> free_;
  /// Calls that a library may compute, whose launches then never come: the oldest are overwritten.
  static constexpr uint64_t kRing = 256;
  static constexpr uint64_t kRingStart = uint64_t{1} << 32;
  std::vector<KeptCall> ring_ = std::vector<KeptCall>(kRing);
  uint64_t ring_next_ = 0;
  std::atomic<ByteCount> workspace_bytes_{0};
  std::atomic<bool> describes_for_libraries_{false};
  std::atomic<bool> takes_workspace_of_kernels_{false};
};

/// A fake machine with the oracle's kernels, the test kernels of the CPU backend, and the backend
/// that opens its cards. Outlives the devices opened on it.
class FakeGpuMachine {
 public:
  /// `open_library`, which may be empty, opens what computes some ops in place of the oracle.
  explicit FakeGpuMachine(const FakeGpuOptions& options = {},
                          GpuLibraryOpener open_library = nullptr);
  /// A device that was lost may have left work behind, which uses the kernels' table.
  ~FakeGpuMachine() { driver_.end(); }
  FakeGpuMachine(const FakeGpuMachine&) = delete;
  FakeGpuMachine& operator=(const FakeGpuMachine&) = delete;

  FakeGpuDriver& driver() { return driver_; }
  OracleKernelTable& table() { return *table_; }
  Backend& backend() { return *backend_; }
  /// Another backend on this machine, for a registry.
  std::unique_ptr<Backend> make_backend() {
    return make_fake_gpu_backend(driver_, table_, open_library_);
  }
  /// Opens "fake_gpu:WHICH".
  Result<std::vector<std::unique_ptr<Device>>> open(const std::string& which);
  /// An image that holds the test kernels.
  static ExecutableImage test_kernels();

 private:
  FakeGpuDriver driver_;
  std::shared_ptr<OracleKernelTable> table_;
  GpuLibraryOpener open_library_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace stagecoach
