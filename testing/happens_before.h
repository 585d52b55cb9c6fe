#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hal/backend_registry.h"
#include "hal/host_access.h"
#include "testing/access_history.h"
#include "testing/interceptor.h"

namespace stagecoach {

/// Two accesses to the same bytes, one of them a write, that nothing orders.
struct Race {
  MemoryAccess earlier, later;  ///< as they were submitted
};

/// "copy 'w up' on cpu:0/parameter_up writes …": both accesses and the bytes they share, one line.
std::string format_race(const Race& race);

/// Finds work that touches the same memory without being ordered, whether or not it went wrong in
/// this run. Streams and the host each have a vector clock. Order comes from a stream's own order,
/// from submitting (work knows what the host knew), from waits for events, and from the host
/// noticing that an event has been passed or a stream is done. Device memory is distinguished by
/// device and address, host memory by address; host threads declare theirs by hal/host_access.h.
///
/// What it does not see: races of host threads with each other (all are one subject here;
/// ThreadSanitizer sees those), host accesses that nobody declares, and what kernels do with
/// pointers other than the first. A wait that the host skips is missed where another thread of the
/// host has noticed the same event.
///
/// Give it to decorated devices as their interceptor; of several decorators it must be the
/// innermost, so that it sees what the others let pass. One may live at a time. After the first
/// verb of a stream or event that fails nothing is noted any more: what follows is not the
/// program's order.
/// Thread rule: any thread.
class HappensBefore final : public Interceptor, public HostAccessObserver {
 public:
  HappensBefore();
  ~HappensBefore() override;

  /// How many accesses raced with an earlier one.
  int64_t race_count() const;
  /// The first few of them.
  std::vector<Race> races() const;
  /// Accesses noted: zero means that nothing was checked.
  int64_t access_count() const;

  Verdict before(const VerbCall& call) override;
  void after(const VerbCall& call, const Status& outcome) override;
  void on_host_access(const void* data, ByteCount size_bytes, bool writes,
                      const Label& label) override;

 private:
  static constexpr size_t kHost = 0;

  struct Subject {
    std::string place;
    std::string device;
    VectorClock clock;
  };

  Subject& subject_of(const VerbCall& call, size_t* index);
  void note_work(const VerbCall& call);
  void note_access(std::shared_ptr<const MemoryAccess> access, const void* space,
                   const VectorClock& known);
  /// What the host will know once `call`, a synchronisation, has returned.
  VectorClock clock_to_reach(const VerbCall& call);

  mutable std::mutex mutex_;
  std::vector<Subject> subjects_;
  std::map<std::string, size_t, std::less<>> subject_of_place_;
  std::map<const Event*, VectorClock> events_;
  std::map<std::thread::id, VectorClock> synchronising_;
  std::map<const void*, AccessHistory> histories_;  ///< by device; null: host memory
  std::vector<Race> races_;
  int64_t race_count_ = 0;
  int64_t access_count_ = 0;
  bool stopped_ = false;
};

/// The backends of `backends`, which must outlive the result, with devices that tell `checker`.
BackendRegistry check_races_of(const BackendRegistry& backends,
                               const std::shared_ptr<HappensBefore>& checker);

/// `inner`, whose devices tell `checker`.
std::unique_ptr<Backend> make_race_checking_backend(std::unique_ptr<Backend> inner,
                                                    std::shared_ptr<HappensBefore> checker);

}  // namespace stagecoach
