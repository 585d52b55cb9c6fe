#include "core/status.h"

#include <cstdio>
#include <cstdlib>

namespace stagecoach {

namespace internal {

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "internal error: %s does not hold (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace internal

struct Status::Payload {
  StatusCode code;
  std::string message;
  FailureSite site;
};

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kFailedPrecondition:
      return "failed precondition";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kUnimplemented:
      return "unimplemented";
    case StatusCode::kDeviceLost:
      return "device lost";
    case StatusCode::kDataLoss:
      return "data loss";
    case StatusCode::kDeadlineExceeded:
      return "deadline exceeded";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kIo:
      return "input/output error";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message)
    : Status(code, std::move(message), FailureSite{}) {}

Status::Status(StatusCode code, std::string message, FailureSite site) {
  if (code == StatusCode::kOk) return;
  payload_ = std::make_shared<const Payload>(Payload{code, std::move(message), std::move(site)});
}

StatusCode Status::code() const {
  return payload_ ? payload_->code : StatusCode::kOk;
}

const std::string& Status::message() const {
  static const std::string empty;
  return payload_ ? payload_->message : empty;
}

const FailureSite& Status::site() const {
  static const FailureSite nowhere;
  return payload_ ? payload_->site : nowhere;
}

std::string Status::to_string() const {
  if (is_ok()) return "ok";
  std::string text(status_code_name(code()));
  text += ": ";
  text += message();
  const FailureSite& where = site();
  std::string details;
  auto append = [&details](const char* name, const std::string& value) {
    if (value.empty()) return;
    if (!details.empty()) details += ", ";
    details += name;
    details += ' ';
    details += value;
  };
  append("device", where.device);
  append("stream", where.stream);
  append("verb", where.verb);
  append("label", where.label);
  if (where.sequence != 0) append("sequence", std::to_string(where.sequence));
  if (!details.empty()) text += " (" + details + ")";
  return text;
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) return *this;
  return Status(code(), std::string(context) + ": " + message(), site());
}

Status Status::with_site(const FailureSite& extra) const {
  if (is_ok()) return *this;
  FailureSite merged = site();
  if (merged.device.empty()) merged.device = extra.device;
  if (merged.stream.empty()) merged.stream = extra.stream;
  if (merged.verb.empty()) merged.verb = extra.verb;
  if (merged.label.empty()) merged.label = extra.label;
  if (merged.sequence == 0) merged.sequence = extra.sequence;
  return Status(code(), message(), std::move(merged));
}

Status invalid_argument(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}
Status not_found(std::string message) {
  return Status(StatusCode::kNotFound, std::move(message));
}
Status unavailable(std::string message) {
  return Status(StatusCode::kUnavailable, std::move(message));
}
Status failed_precondition(std::string message) {
  return Status(StatusCode::kFailedPrecondition, std::move(message));
}
Status resource_exhausted(std::string message) {
  return Status(StatusCode::kResourceExhausted, std::move(message));
}
Status unimplemented(std::string message) {
  return Status(StatusCode::kUnimplemented, std::move(message));
}
Status data_loss(std::string message) {
  return Status(StatusCode::kDataLoss, std::move(message));
}
Status deadline_exceeded(std::string message) {
  return Status(StatusCode::kDeadlineExceeded, std::move(message));
}
Status cancelled(std::string message) {
  return Status(StatusCode::kCancelled, std::move(message));
}
Status io_error(std::string message) {
  return Status(StatusCode::kIo, std::move(message));
}
Status internal_error(std::string message) {
  return Status(StatusCode::kInternal, std::move(message));
}

}  // namespace stagecoach
