#pragma once

#include "core/status.h"

namespace stagecoach {

/// Exit codes that users and scripts may rely on.
inline constexpr int kExitOk = 0;
inline constexpr int kExitUsage = 1;
inline constexpr int kExitNoDevice = 2;
inline constexpr int kExitData = 3;
inline constexpr int kExitDoesNotFit = 4;
inline constexpr int kExitPartial = 5;
inline constexpr int kExitInterrupted = 130;

/// The exit code that a failure asks for. Only memory that does not suffice is "resource exhausted"
/// here: a full disk is reported as an input-output failure by whoever writes.
constexpr int exit_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return kExitOk;
    case StatusCode::kUnavailable:
    case StatusCode::kDeviceLost:
    case StatusCode::kDeadlineExceeded:
      return kExitNoDevice;
    case StatusCode::kDataLoss:
      return kExitData;
    case StatusCode::kResourceExhausted:
      return kExitDoesNotFit;
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kUnimplemented:
    case StatusCode::kCancelled:
    case StatusCode::kIo:
    case StatusCode::kInternal:
      return kExitUsage;
  }
  return kExitUsage;
}

}  // namespace stagecoach
