#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "testing/fake_gpu_parts.h"

namespace stagecoach {

/// A driver without a card: streams are queues with a thread each, device memory is the host's,
/// kernels are host functions. Checks what real drivers leave undefined: which context is current,
/// whether memory is still allocated. FakeApi (fake_gpu_api.h) is its table.
/// Thread rule: any thread. Outlives all devices opened on it.
class FakeGpuDriver {
 public:
  explicit FakeGpuDriver(const FakeGpuOptions& options = {});
  ~FakeGpuDriver();
  FakeGpuDriver(const FakeGpuDriver&) = delete;
  FakeGpuDriver& operator=(const FakeGpuDriver&) = delete;

  /// Ends all streams, which run nothing more of what is queued: for owners of what kernels use
  /// that are destroyed before this.
  void end();

  /// Kernels exist in every module; add them before anything is launched.
  void add_kernel(FakeGpuKernel kernel);
  /// The `nth` call (from 1, counted from now) of `function` returns `error`. With `loses_card`
  /// so does everything after it on the card whose context is current.
  void fail_call(FakeGpuFunction function, int nth, int error, bool loses_card = false);
  /// The next kernel launched on any card fails with `error` when it runs, not when launched.
  void fail_next_kernel(int error) { kernel_error_ = error; }
  int64_t calls(FakeGpuFunction function) const;
  /// The most copies of one direction that a card had been given and not done.
  int most_copies_queued() const;
  /// Copies from and to host memory that is not pinned, so far.
  int64_t pageable_copies() const;
  /// Lets copies that hang (FakePeerCopies::kHang) end.
  void release_hangs();
  /// What has been allocated or created and not given back; empty when nothing.
  std::string leaks() const;
  /// Whether `size` bytes at `address` lie in device memory that is allocated.
  bool is_allocated(GpuAddress address, size_t size) const;
  /// Bytes from `address` to the end of its allocation; 0 outside of all.
  size_t bytes_behind(GpuAddress address) const;

 private:
  friend class FakeApi;
  using Lock = std::unique_lock<std::mutex>;

  // All of these are called with `mutex_` held; what blocks waits on it.
  /// Counts the call; the error that a fault asks for.
  int enter(FakeGpuFunction function);
  /// The same, and checks that `card`'s context is current and sound.
  int enter_on(FakeGpuFunction function, fake_gpu::Card* card);
  fake_gpu::Card* card_of(GpuContextHandle context) const;
  fake_gpu::Card* current_card() const;
  int allocate(GpuAddress* address, size_t size);
  int free(GpuAddress address);
  int push(FakeGpuFunction function, GpuStreamHandle handle, fake_gpu::Entry entry);
  int record(GpuEventHandle event, GpuStreamHandle stream);
  int wait(GpuStreamHandle stream, GpuEventHandle event);
  int query_stream(GpuStreamHandle handle);
  int query_event(GpuEventHandle handle);
  int synchronize_event(Lock& lock, GpuEventHandle handle);
  int create_stream(GpuStreamHandle* handle);
  int destroy_stream(GpuStreamHandle handle);
  int create_event(GpuEventHandle* handle, bool timing);
  int destroy_event(GpuEventHandle handle);

  fake_gpu::Record* new_record();
  void drop_record(fake_gpu::Record* record);
  void serve(const std::shared_ptr<fake_gpu::Stream>& stream);
  /// Runs one entry; returns the driver error it ended with. Called and returns locked.
  int run(Lock& lock, fake_gpu::Stream& stream, fake_gpu::Entry& entry);
  static fake_gpu::Card::Engine& engine_of(fake_gpu::Card& card, const fake_gpu::Entry& entry);
  int run_copy(Lock& lock, fake_gpu::Card& card, const fake_gpu::Entry& entry);
  int run_kernel(Lock& lock, fake_gpu::Card& card, const fake_gpu::Entry& entry);
  int fill(const fake_gpu::Entry& entry);
  /// The context of `card` is broken. By the time that anyone is told, nothing of it touches memory
  /// any more, as with a card whose channels have been torn down.
  void break_card(fake_gpu::Card& card, int error);
  /// Waits, with the lock held and let go meanwhile, until nothing on the card touches memory.
  void wait_until_still(fake_gpu::Card& card);
  void reap_streams();
  bool is_allocated_locked(GpuAddress address, size_t size) const;
  bool is_pinned(GpuAddress address, size_t size) const;
  void count_copy(fake_gpu::Card& card, const fake_gpu::Entry& entry);

  const FakeGpuOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<fake_gpu::Card>> cards_;
  std::vector<std::unique_ptr<FakeGpuKernel>> kernels_;
  fake_gpu::HandleTable<fake_gpu::Stream> streams_;
  fake_gpu::HandleTable<fake_gpu::Event> events_;
  fake_gpu::HandleTable<fake_gpu::Module> modules_;
  fake_gpu::HandleTable<fake_gpu::LoadedFunction> functions_;
  std::vector<std::shared_ptr<fake_gpu::Stream>> closing_;
  std::map<GpuAddress, fake_gpu::Allocation> allocations_;
  std::map<void*, size_t> host_allocations_;
  std::map<void*, size_t> registered_;
  std::vector<std::unique_ptr<fake_gpu::Record>> records_;
  std::vector<fake_gpu::Record*> free_records_;
  uint64_t next_ticket_ = 0;
  int64_t pageable_copies_ = 0;
  bool hangs_released_ = false;
  bool ending_ = false;
  std::atomic<int> kernel_error_{0};
  std::atomic<int64_t> peer_copies_{0};

  struct Fault {
    int64_t at_call = 0;  ///< 0: none
    int error = 0;
    bool loses_card = false;
  };
  std::array<int64_t, kFakeGpuFunctionCount> calls_ = {};
  std::array<Fault, kFakeGpuFunctionCount> faults_ = {};
};

}  // namespace stagecoach
