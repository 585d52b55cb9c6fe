// The driver's bookkeeping: calls, contexts, memory, handles. The queues are in fake_gpu_queue.cpp.
#include "testing/fake_gpu_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

#include "core/check.h"

namespace stagecoach {

using namespace fake_gpu;

namespace {

constexpr int kPoisonByte = 0xff;  // NaN in every floating-point type
constexpr size_t kAlignmentBytes = 256;

constexpr std::string_view kFunctionNames[] = {
#define STAGECOACH_FAKE_GPU_NAME(name) #name,
    STAGECOACH_FAKE_GPU_FUNCTIONS(STAGECOACH_FAKE_GPU_NAME)
#undef STAGECOACH_FAKE_GPU_NAME
};

}  // namespace

// The context of this thread, as every driver keeps it; contexts of different fakes never compare
// equal while both exist.
thread_local GpuContextHandle fake_gpu_current_context = nullptr;

std::string_view fake_gpu_function_name(FakeGpuFunction function) {
  return kFunctionNames[static_cast<size_t>(function)];
}

FakeGpuDriver::FakeGpuDriver(const FakeGpuOptions& options) : options_(options) {
  for (int i = 0; i < options.card_count; ++i) {
    cards_.push_back(std::make_unique<Card>());
    cards_.back()->ordinal = i;
  }
}

void FakeGpuDriver::end() {
  std::vector<std::shared_ptr<Stream>> ending;
  {
    Lock lock(mutex_);
    ending_ = true;
    hangs_released_ = true;
    ending = closing_;
    for (const auto& stream : streams_.all()) {
      if (stream != nullptr) ending.push_back(stream);
    }
    for (auto& stream : ending) stream->closing = true;
  }
  changed_.notify_all();
  for (auto& stream : ending) {
    if (stream->thread.joinable()) stream->thread.join();
  }
}

FakeGpuDriver::~FakeGpuDriver() {
  end();
  for (auto& [address, allocation] : allocations_) {
    std::free(reinterpret_cast<void*>(static_cast<uintptr_t>(address)));
  }
  for (auto& [data, size] : host_allocations_) std::free(data);
}

void FakeGpuDriver::add_kernel(FakeGpuKernel kernel) {
  STAGECOACH_CHECK(kernel.argument_count <= kMaxArguments);
  Lock lock(mutex_);
  kernels_.push_back(std::make_unique<FakeGpuKernel>(std::move(kernel)));
}

void FakeGpuDriver::fail_call(FakeGpuFunction function, int nth, int error, bool loses_card) {
  Lock lock(mutex_);
  auto index = static_cast<size_t>(function);
  faults_[index] = {calls_[index] + nth, error, loses_card};
}

int64_t FakeGpuDriver::calls(FakeGpuFunction function) const {
  Lock lock(mutex_);
  return calls_[static_cast<size_t>(function)];
}

int FakeGpuDriver::most_copies_queued() const {
  Lock lock(mutex_);
  int most = 0;
  for (const auto& card : cards_) {
    most = std::max({most, card->up.most_queued, card->down.most_queued});
  }
  return most;
}

int64_t FakeGpuDriver::pageable_copies() const {
  Lock lock(mutex_);
  return pageable_copies_;
}

bool FakeGpuDriver::is_pinned(GpuAddress address, size_t size) const {
  auto lies_in = [&](const std::map<void*, size_t>& ranges) {
    auto next = ranges.upper_bound(reinterpret_cast<void*>(static_cast<uintptr_t>(address)));
    if (next == ranges.begin()) return false;
    auto found = std::prev(next);
    return address + size <= reinterpret_cast<uintptr_t>(found->first) + found->second;
  };
  return lies_in(host_allocations_) || lies_in(registered_);
}

void FakeGpuDriver::release_hangs() {
  Lock lock(mutex_);
  hangs_released_ = true;
  changed_.notify_all();
}

std::string FakeGpuDriver::leaks() const {
  Lock lock(mutex_);
  std::string text;
  auto count = [&text](std::string_view what, size_t number) {
    if (number > 0) text += fmt::format("{} {}; ", number, what);
  };
  count("device allocations", allocations_.size());
  count("host allocations", host_allocations_.size());
  count("registered ranges", registered_.size());
  count("streams", streams_.size());
  count("events", events_.size());
  count("modules", modules_.size());
  for (const auto& card : cards_) {
    count("references to a context", static_cast<size_t>(card->retained));
  }
  return text;
}

int FakeGpuDriver::enter(FakeGpuFunction function) {
  auto index = static_cast<size_t>(function);
  const Fault& fault = faults_[index];
  if (++calls_[index] != fault.at_call) return 0;
  Card* card = current_card();
  if (fault.loses_card && card != nullptr) break_card(*card, fault.error);
  return fault.error;
}

int FakeGpuDriver::enter_on(FakeGpuFunction function, Card* card) {
  if (int error = enter(function); error != 0) return error;
  if (card == nullptr) return FakeGpuError::kInvalidHandle;
  if (current_card() != card || card->retained == 0) return FakeGpuError::kInvalidContext;
  if (card->sticky_error != 0) wait_until_still(*card);
  return card->sticky_error;
}

Card* FakeGpuDriver::card_of(GpuContextHandle context) const {
  for (const auto& card : cards_) {
    if (card.get() == context) return card.get();
  }
  return nullptr;
}

Card* FakeGpuDriver::current_card() const {
  return card_of(fake_gpu_current_context);
}

int FakeGpuDriver::allocate(GpuAddress* address, size_t size) {
  Card* card = current_card();
  if (int error = enter_on(FakeGpuFunction::allocate, card); error != 0) return error;
  auto bytes = static_cast<ByteCount>(size);
  ByteCount left = options_.memory_bytes - options_.foreign_bytes - card->used_bytes;
  if (bytes > left) return FakeGpuError::kOutOfMemory;
  void* data = nullptr;
  if (posix_memalign(&data, kAlignmentBytes, size) != 0) return FakeGpuError::kOutOfMemory;
  std::memset(data, kPoisonByte, size);
  card->used_bytes += bytes;
  *address = reinterpret_cast<uintptr_t>(data);
  allocations_[*address] = {card, size};
  return 0;
}

int FakeGpuDriver::free(GpuAddress address) {
  auto found = allocations_.find(address);
  Card* card = found == allocations_.end() ? nullptr : found->second.card;
  if (int error = enter(FakeGpuFunction::free); error != 0) return error;
  if (card == nullptr) return FakeGpuError::kInvalidValue;
  if (current_card() != card) return FakeGpuError::kInvalidContext;
  // Given back even in a broken context, so that what leaks is seen.
  card->used_bytes -= static_cast<ByteCount>(found->second.size);
  void* data = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  std::memset(data, kPoisonByte, found->second.size);
  allocations_.erase(found);
  std::free(data);
  return card->sticky_error;
}

bool FakeGpuDriver::is_allocated_locked(GpuAddress address, size_t size) const {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return false;
  auto found = std::prev(next);
  GpuAddress offset = address - found->first;
  return offset <= found->second.size && size <= found->second.size - offset;
}

bool FakeGpuDriver::is_allocated(GpuAddress address, size_t size) const {
  Lock lock(mutex_);
  return is_allocated_locked(address, size);
}

size_t FakeGpuDriver::bytes_behind(GpuAddress address) const {
  Lock lock(mutex_);
  if (!is_allocated_locked(address, 0)) return 0;
  auto found = std::prev(allocations_.upper_bound(address));
  return found->second.size - static_cast<size_t>(address - found->first);
}

int FakeGpuDriver::create_event(GpuEventHandle* handle, bool timing) {
  Card* card = current_card();
  if (int error = enter_on(FakeGpuFunction::create_event, card); error != 0) return error;
  auto event = std::make_shared<Event>();
  event->card = card;
  event->timing = timing;
  *handle = events_.add(std::move(event));
  return 0;
}

int FakeGpuDriver::destroy_event(GpuEventHandle handle) {
  std::shared_ptr<Event> event = events_.remove(handle);
  int error = enter_on(FakeGpuFunction::destroy_event, event == nullptr ? nullptr : event->card);
  if (event != nullptr && event->latest != nullptr) drop_record(event->latest);
  return error;
}

Record* FakeGpuDriver::new_record() {
  if (free_records_.empty()) {
    records_.push_back(std::make_unique<Record>());
    free_records_.reserve(records_.size());
    free_records_.push_back(records_.back().get());
  }
  Record* record = free_records_.back();
  free_records_.pop_back();
  *record = Record{1, false, 0};
  return record;
}

void FakeGpuDriver::drop_record(Record* record) {
  if (--record->references == 0) free_records_.push_back(record);
}

}  // namespace stagecoach
