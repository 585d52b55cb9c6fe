#pragma once

#include "core/status.h"

namespace stagecoach {

/// Error numbers that CUDA's driver and HIP share; the header checks of both backends compare them
/// with the vendors' own.
struct GpuErrorCode {
  static constexpr int kSuccess = 0;
  static constexpr int kInvalidValue = 1;
  static constexpr int kOutOfMemory = 2;
  static constexpr int kNotInitialized = 3;
  static constexpr int kDeinitialized = 4;
  static constexpr int kNoDevice = 100;
  static constexpr int kInvalidDevice = 101;
  static constexpr int kInvalidImage = 200;
  static constexpr int kInvalidContext = 201;
  static constexpr int kNoBinary = 209;
  static constexpr int kEccUncorrectable = 214;
  static constexpr int kPeerUnsupported = 217;
  static constexpr int kInvalidCode = 218;
  static constexpr int kFileNotFound = 301;
  static constexpr int kInvalidHandle = 400;
  static constexpr int kNotFound = 500;
  static constexpr int kNotReady = 600;
  static constexpr int kIllegalAddress = 700;
  static constexpr int kLaunchOutOfResources = 701;
  static constexpr int kLaunchTimeout = 702;
  static constexpr int kPeerAlreadyEnabled = 704;
  static constexpr int kPeerNotEnabled = 705;
  static constexpr int kContextDestroyed = 709;
  static constexpr int kAssert = 710;
  static constexpr int kAlreadyRegistered = 712;
  static constexpr int kNotRegistered = 713;
  static constexpr int kLaunchFailed = 719;
  static constexpr int kCooperativeTooLarge = 720;
  static constexpr int kNotSupported = 801;
  static constexpr int kUnknown = 999;
};

/// What an error of either driver asks of the caller. Total: every number has a code.
StatusCode map_gpu_error(int error);

}  // namespace stagecoach
