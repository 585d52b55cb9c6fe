#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/check.h"

namespace stagecoach {

/// What a failure asks of the caller; every vendor error maps to one of these.
enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument,     ///< The request is wrong whatever the state: change it.
  kNotFound,            ///< A named thing (file, kernel, device) does not exist.
  kUnavailable,         ///< No usable device or library here: use another.
  kFailedPrecondition,  ///< Right request, wrong moment: the order of calls is wrong.
  kResourceExhausted,   ///< Memory, disk or another limit is used up: free or shrink.
  kUnimplemented,       ///< This backend or version cannot do it.
  kDeviceLost,          ///< The device is gone; nothing on it can be trusted.
  kDataLoss,            ///< Data is corrupt or not finite.
  kDeadlineExceeded,    ///< No progress within the time limit.
  kCancelled,           ///< Stopped because something else failed or was interrupted.
  kIo,                  ///< A file operation failed.
  kInternal,            ///< A bug in this program.
};

/// Name as printed in messages, for example "invalid argument".
std::string_view status_code_name(StatusCode code);

/// Where a failure happened. Empty fields are unknown.
struct FailureSite {
  std::string device;     ///< "cpu:1"
  std::string stream;     ///< "compute"
  std::string verb;       ///< "copy"
  std::string label;      ///< what the caller called the operation
  uint64_t sequence = 0;  ///< position in the stream, from 1; 0 when unknown
};

/// Outcome of an operation. Copying is cheap; an ok status holds nothing.
/// Thread rule: immutable once made, so free to share.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);
  Status(StatusCode code, std::string message, FailureSite site);

  static Status ok() { return Status(); }

  bool is_ok() const { return payload_ == nullptr; }
  StatusCode code() const;
  /// The message without code and site; empty when ok.
  const std::string& message() const;
  const FailureSite& site() const;
  /// One line: code, message, and the site's known fields.
  std::string to_string() const;
  /// The same failure with "context: " before its message.
  Status with_context(std::string_view context) const;
  /// The same failure with `site` filled in where it has none yet.
  Status with_site(const FailureSite& site) const;

 private:
  struct Payload;
  std::shared_ptr<const Payload> payload_;
};

/// Makes a failure of the named code.
Status invalid_argument(std::string message);
Status not_found(std::string message);
Status unavailable(std::string message);
Status failed_precondition(std::string message);
Status resource_exhausted(std::string message);
Status unimplemented(std::string message);
Status data_loss(std::string message);
Status deadline_exceeded(std::string message);
Status cancelled(std::string message);
Status io_error(std::string message);
Status internal_error(std::string message);

/// A value or the failure that took its place.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    STAGECOACH_CHECK(!std::get<1>(state_).is_ok());
  }

  bool is_ok() const { return state_.index() == 0; }
  /// The failure, or ok.
  Status status() const { return is_ok() ? Status() : std::get<1>(state_); }
  T& value() & {
    STAGECOACH_CHECK(is_ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    STAGECOACH_CHECK(is_ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    STAGECOACH_CHECK(is_ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace stagecoach

#define STAGECOACH_CONCAT_INNER(a, b) a##b
#define STAGECOACH_CONCAT(a, b) STAGECOACH_CONCAT_INNER(a, b)

/// Returns from the function when `expression` (a Status) has failed.
#define STAGECOACH_RETURN_IF_ERROR(expression)                                               \
  do {                                                                                       \
    if (::stagecoach::Status stagecoach_status = (expression); !stagecoach_status.is_ok()) { \
      return stagecoach_status;                                                              \
    }                                                                                        \
  } while (false)

/// Assigns the value of `expression` (a Result) to `target` or returns its failure.
#define STAGECOACH_ASSIGN_OR_RETURN(target, expression)                                      \
  STAGECOACH_ASSIGN_OR_RETURN_INNER(STAGECOACH_CONCAT(stagecoach_result_, __LINE__), target, \
                                    expression)
#define STAGECOACH_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                         \
  if (!result.is_ok()) return result.status();                        \
  target = std::move(result).value()

/// Returns from the function when `expression` (a Result) has failed, discarding its value.
#define STAGECOACH_RETURN_IF_FAILED(expression)                              \
  do {                                                                       \
    if (auto stagecoach_result = (expression); !stagecoach_result.is_ok()) { \
      return stagecoach_result.status();                                     \
    }                                                                        \
  } while (false)

/// The same two inside a coroutine.
#define STAGECOACH_CO_RETURN_IF_ERROR(expression)                                            \
  do {                                                                                       \
    if (::stagecoach::Status stagecoach_status = (expression); !stagecoach_status.is_ok()) { \
      co_return stagecoach_status;                                                           \
    }                                                                                        \
  } while (false)
#define STAGECOACH_CO_ASSIGN_OR_RETURN(target, expression)                                      \
  STAGECOACH_CO_ASSIGN_OR_RETURN_INNER(STAGECOACH_CONCAT(stagecoach_result_, __LINE__), target, \
                                       expression)
#define STAGECOACH_CO_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                            \
  if (!result.is_ok()) co_return result.status();                        \
  target = std::move(result).value()
