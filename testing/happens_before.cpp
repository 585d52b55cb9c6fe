#include "testing/happens_before.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/check.h"
#include "hal/device.h"
#include "testing/decorated_backend.h"

namespace stagecoach {

namespace {

constexpr size_t kKeptRaces = 16;

std::string format_access(const MemoryAccess& access) {
  return fmt::format("{} '{}' on {} {} bytes {:#x} to {:#x}", access.verb, access.label.view(),
                     access.place, access.writes ? "writes" : "reads", access.begin, access.end);
}

struct Place {
  const void* space;
  uintptr_t begin;
};

Place place_of(const Buffer& buffer, ByteCount offset) {
  auto address = buffer.host_data() == nullptr ? buffer.device_address()
                                               : reinterpret_cast<uintptr_t>(buffer.host_data());
  const void* space = buffer.host_data() == nullptr ? &buffer.device() : nullptr;
  return {space, address + static_cast<uintptr_t>(offset)};
}

/// A backend that belongs to somebody else.
class BorrowedBackend final : public Backend {
 public:
  explicit BorrowedBackend(Backend& backend) : backend_(backend) {}
  std::string_view name() const override { return backend_.name(); }
  Status availability() override { return backend_.availability(); }
  std::vector<DeviceInfo> list_devices() override { return backend_.list_devices(); }
  std::vector<std::string> code_targets() const override { return backend_.code_targets(); }
  Status check(const DeviceSpec& spec) const override { return backend_.check(spec); }
  Result<std::vector<std::unique_ptr<Device>>> open(const DeviceSpec& spec) override {
    return backend_.open(spec);
  }

 private:
  Backend& backend_;
};

}  // namespace

std::string format_race(const Race& race) {
  uintptr_t begin = std::max(race.earlier.begin, race.later.begin);
  uintptr_t end = std::min(race.earlier.end, race.later.end);
  return fmt::format("{} and {} are not ordered; they share {} bytes from byte {} and {} on",
                     format_access(race.earlier), format_access(race.later), end - begin,
                     begin - race.earlier.begin, begin - race.later.begin);
}

HappensBefore::HappensBefore() {
  subjects_.push_back({"host", {}, {}});
  STAGECOACH_CHECK(internal::host_access_observer.load() == nullptr);
  set_host_access_observer(this);
}

HappensBefore::~HappensBefore() {
  set_host_access_observer(nullptr);
}

int64_t HappensBefore::race_count() const {
  std::lock_guard lock(mutex_);
  return race_count_;
}

std::vector<Race> HappensBefore::races() const {
  std::lock_guard lock(mutex_);
  return races_;
}

int64_t HappensBefore::access_count() const {
  std::lock_guard lock(mutex_);
  return access_count_;
}

HappensBefore::Subject& HappensBefore::subject_of(const VerbCall& call, size_t* index) {
  std::string place = fmt::format("{}/{}", call.device, call.stream);
  auto [found, is_new] = subject_of_place_.try_emplace(std::move(place), subjects_.size());
  if (is_new) subjects_.push_back({found->first, std::string(call.device), {}});
  if (index != nullptr) *index = found->second;
  return subjects_[found->second];
}

void HappensBefore::note_access(std::shared_ptr<const MemoryAccess> access, const void* space,
                                const VectorClock& known) {
  ++access_count_;
  AccessHistory::Access earlier = histories_[space].add(access, known);
  if (earlier == nullptr) return;
  ++race_count_;
  if (races_.size() < kKeptRaces) races_.push_back({*earlier, *access});
}

void HappensBefore::note_work(const VerbCall& call) {
  size_t index = 0;
  Subject& subject = subject_of(call, &index);
  subject.clock.join(subjects_[kHost].clock);
  uint64_t time = subject.clock[index] + 1;
  subject.clock.set(index, time);
  for (const MemoryUse& use : call.uses) {
    Place place = place_of(*use.view.buffer, use.view.offset);
    MemoryAccess access{
        index,      time,       subject.place, std::string(call.verb),
        call.label, use.writes, place.begin,   place.begin + static_cast<uintptr_t>(use.view.size)};
    note_access(std::make_shared<const MemoryAccess>(std::move(access)), place.space,
                subject.clock);
  }
}

VectorClock HappensBefore::clock_to_reach(const VerbCall& call) {
  if (call.event != nullptr) return events_[call.event];
  if (!call.stream.empty()) return subject_of(call, nullptr).clock;
  VectorClock all;
  for (const Subject& subject : subjects_) {
    if (subject.device == call.device) all.join(subject.clock);
  }
  return all;
}

Verdict HappensBefore::before(const VerbCall& call) {
  std::lock_guard lock(mutex_);
  if (stopped_) return {};
  if (!call.uses.empty()) note_work(call);
  if (call.verb == verbs::kWait) subject_of(call, nullptr).clock.join(events_[call.event]);
  // What is submitted while the host waits is not waited for.
  if (call.verb == verbs::kSynchronize || call.verb == verbs::kQueryEvent) {
    synchronising_[std::this_thread::get_id()] = clock_to_reach(call);
  }
  return {};
}

void HappensBefore::after(const VerbCall& call, const Status& outcome) {
  std::lock_guard lock(mutex_);
  if (!outcome.is_ok() && !call.stream.empty()) stopped_ = true;
  if (stopped_) return;
  if (call.verb == verbs::kRecord) {
    Subject& subject = subject_of(call, nullptr);
    subject.clock.join(subjects_[kHost].clock);
    events_[call.event] = subject.clock;
  }
  if (call.verb == verbs::kSynchronize || (call.verb == verbs::kQueryEvent && call.passed)) {
    subjects_[kHost].clock.join(synchronising_[std::this_thread::get_id()]);
  }
  if (call.created != nullptr) {
    Place place = place_of(*call.created, 0);
    uintptr_t end = place.begin + static_cast<uintptr_t>(call.created->size());
    histories_[place.space].forget(place.begin, end);
  }
}

void HappensBefore::on_host_access(const void* data, ByteCount size_bytes, bool writes,
                                   const Label& label) {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  VectorClock& clock = subjects_[kHost].clock;
  uint64_t time = clock[kHost] + 1;
  clock.set(kHost, time);
  auto begin = reinterpret_cast<uintptr_t>(data);
  MemoryAccess access{kHost, time,   "host", "host work",
                      label, writes, begin,  begin + static_cast<uintptr_t>(size_bytes)};
  note_access(std::make_shared<const MemoryAccess>(std::move(access)), nullptr, clock);
}

BackendRegistry check_races_of(const BackendRegistry& backends,
                               const std::shared_ptr<HappensBefore>& checker) {
  BackendRegistry checked;
  for (const std::unique_ptr<Backend>& backend : backends.backends()) {
    checked.add(make_race_checking_backend(std::make_unique<BorrowedBackend>(*backend), checker));
  }
  return checked;
}

std::unique_ptr<Backend> make_race_checking_backend(std::unique_ptr<Backend> inner,
                                                    std::shared_ptr<HappensBefore> checker) {
  return std::make_unique<DecoratedBackend>(std::move(inner), std::move(checker));
}

}  // namespace stagecoach
