#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/bytes.h"
#include "core/label.h"
#include "core/status.h"
#include "hal/buffer.h"
#include "hal/event.h"

namespace stagecoach {

/// Names of the verbs that are not operations of the Ops table (those are `op_kind_name`).
namespace verbs {
inline constexpr std::string_view kCopy = "copy";
inline constexpr std::string_view kFill = "fill";
inline constexpr std::string_view kLaunch = "launch";
inline constexpr std::string_view kRecord = "record";
inline constexpr std::string_view kWait = "wait";
/// Of a device, a stream or an event.
inline constexpr std::string_view kSynchronize = "synchronize";
inline constexpr std::string_view kQueryEvent = "query_event";
inline constexpr std::string_view kTimestampEvent = "timestamp_event";
inline constexpr std::string_view kCreateStream = "create_stream";
inline constexpr std::string_view kCreateEvent = "create_event";
inline constexpr std::string_view kAllocate = "allocate";
inline constexpr std::string_view kAllocatePinned = "allocate_pinned";
inline constexpr std::string_view kRegisterHost = "register_host";
inline constexpr std::string_view kLoadExecutable = "load_executable";
inline constexpr std::string_view kEnablePeer = "enable_peer";
inline constexpr std::string_view kMemoryUsage = "memory_usage";
}  // namespace verbs

/// Memory that work on a stream reads or writes.
struct MemoryUse {
  BufferView view;
  bool writes = false;
};

/// One call of a verb on a decorated object, as an interceptor sees it. The views are valid only
/// during the call.
struct VerbCall {
  std::string_view verb;
  int device_index = 0;      ///< DeviceInfo::index
  std::string_view device;   ///< "cpu:1"
  std::string_view stream;   ///< "compute", a second one of that name "compute#2"; empty when none
  Label label;               ///< the caller's; for verbs without one, of the work they speak about
  ByteCount size_bytes = 0;  ///< of the copy, fill or allocation, or of all operands; else 0
  /// Of work. Of a kernel only pointers are known: the first one counts as written.
  std::span<const MemoryUse> uses;
  const Event* event = nullptr;     ///< recorded, waited for, asked or synchronised with
  const Buffer* created = nullptr;  ///< `after` an allocation or registration that succeeded
  bool passed = false;              ///< `after` a query: whether the event has been passed
};

/// What a decorated object shall do with a call.
struct Verdict {
  enum class Kind : uint8_t {
    kForward,         ///< hand it to the inner object
    kRefuse,          ///< answer `status`; the inner object hears nothing
    kFailLater,       ///< accept; the stream fails with `status` when the work would have run
    kNeverCompletes,  ///< accept; the work, and all that is behind it or waits for it, never ends
    kExhaust,         ///< an allocation answers kExhausted
    kCorrupt,         ///< forward, then damage what the work wrote
    kSkip,  ///< answer ok, or that the event has been passed; the inner object hears nothing
  };
  Kind kind = Kind::kForward;
  Status status;         ///< for kRefuse and kFailLater
  int64_t delay_ns = 0;  ///< the calling thread sleeps this long first
};

/// What a decorated backend asks around every verb. kForward, kRefuse and a delay fit every verb;
/// kFailLater and kNeverCompletes only work submitted to a stream, kCorrupt only work that writes,
/// kExhaust only allocations, kSkip only what is submitted to a stream (but records), questions to
/// events and synchronisation: it makes a program with that statement left out.
/// Thread rule: called from any thread, often under a stream's lock: must not call the devices.
class Interceptor {
 public:
  virtual ~Interceptor() = default;

  /// Before the call; decides what becomes of it.
  virtual Verdict before(const VerbCall& call) = 0;
  /// After the call, with what the caller is told. Exhaustion reads as resource exhausted.
  virtual void after(const VerbCall& call, const Status& outcome) = 0;
};

/// Asks `interceptor` and sleeps the delay it wants.
Verdict begin_call(Interceptor& interceptor, const VerbCall& call);

/// The whole of a verb without a stream: asks, then forwards or refuses, then tells the outcome.
/// `T` is a Status or a Result.
template <typename T, typename Forward>
T intercept(Interceptor& interceptor, const VerbCall& call, Forward&& forward) {
  Verdict verdict = begin_call(interceptor, call);
  auto decide = [&]() -> T {
    if (verdict.kind == Verdict::Kind::kRefuse) return verdict.status;
    if constexpr (std::is_same_v<T, Status>) {
      if (verdict.kind == Verdict::Kind::kSkip) return Status::ok();
    }
    if constexpr (std::is_same_v<T, Result<bool>>) {
      if (verdict.kind == Verdict::Kind::kSkip) return true;
    }
    STAGECOACH_CHECK(verdict.kind == Verdict::Kind::kForward);
    return forward();
  };
  T answer = decide();
  if constexpr (std::is_same_v<T, Status>) {
    interceptor.after(call, answer);
  } else {
    interceptor.after(call, answer.status());
  }
  return answer;
}

}  // namespace stagecoach
