#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hal/backend.h"
#include "testing/interceptor.h"

namespace stagecoach {

/// One call, as logged when it returned. Plain data.
struct LogEntry {
  std::string device;  ///< "cpu:1"
  std::string stream;  ///< "compute"; a second stream of that name is "compute#2"; may be empty
  std::string verb;    ///< "copy", "matmul"
  std::string label;   ///< see VerbCall::label
  ByteCount size_bytes = 0;
  uint64_t sequence = 0;  ///< position in the whole log, from 1
  StatusCode outcome = StatusCode::kOk;
};

/// Which entries a comparison or print takes. Streams record events of their own and skip waits for
/// what is already done, and hosts ask events as often as they like, so only the work itself is
/// the same in every run of a program.
enum class LogDetail : uint8_t {
  kWork,  ///< copies, fills, launches and math
  kAll,   ///< every verb
};

/// What was asked of the devices, in order.
/// Thread rule: any thread.
class OperationLog {
 public:
  /// Appends an entry and numbers it.
  void append(LogEntry entry);
  std::vector<LogEntry> entries() const;
  /// "cpu:0/compute" for every stream that has an entry, sorted; "cpu:0" for calls without a
  /// stream.
  std::vector<std::string> lanes() const;
  /// The entries of one lane, a line each: "verb 'label' bytes", with the outcome unless ok. Ready
  /// to compare with a golden text.
  std::string format_lane(const std::string& lane, LogDetail detail = LogDetail::kWork) const;
  /// All lanes, each under a line with its name.
  std::string format(LogDetail detail = LogDetail::kWork) const;

 private:
  mutable std::mutex mutex_;
  std::vector<LogEntry> entries_;
};

/// Empty when every stream was given the same work in the same order; otherwise one message that
/// names the first lane that differs, the position in it and both entries.
std::string first_difference(const OperationLog& left, const OperationLog& right);

/// Logs every call into an OperationLog and changes nothing.
/// Thread rule: any thread.
class Recorder final : public Interceptor {
 public:
  explicit Recorder(std::shared_ptr<OperationLog> log) : log_(std::move(log)) {}

  Verdict before(const VerbCall& call) override { return {}; }
  void after(const VerbCall& call, const Status& outcome) override;

 private:
  std::shared_ptr<OperationLog> log_;
};

/// `inner`, whose devices log what they are asked.
std::unique_ptr<Backend> make_recording_backend(std::unique_ptr<Backend> inner,
                                                std::shared_ptr<OperationLog> log);

}  // namespace stagecoach
