#include "backends/gpu/gpu_error_map.h"

namespace stagecoach {

namespace {

struct ErrorRange {
  int first;
  int last;
  StatusCode code;
};

// Ascending; numbers between the ranges are internal errors. The names are CUDA's; HIP gives the
// same numbers to the same errors and leaves some out.
constexpr ErrorRange kRanges[] = {
    {1, 1, StatusCode::kInvalidArgument},         // invalid value
    {2, 2, StatusCode::kResourceExhausted},       // out of memory
    {4, 4, StatusCode::kUnavailable},             // deinitialized: the program is ending
    {34, 36, StatusCode::kUnavailable},           // stub library, insufficient or too old a driver
    {46, 46, StatusCode::kUnavailable},           // device held by another process
    {53, 53, StatusCode::kDeviceLost},            // HIP: an earlier launch failed
    {98, 98, StatusCode::kUnavailable},           // HIP: no such function for this card
    {100, 102, StatusCode::kUnavailable},         // no device, invalid device, not licensed
    {200, 200, StatusCode::kInvalidArgument},     // invalid image
    {209, 209, StatusCode::kUnavailable},         // no binary for this card
    {214, 214, StatusCode::kDeviceLost},          // uncorrectable ECC error
    {217, 217, StatusCode::kUnimplemented},       // peer access unsupported
    {218, 218, StatusCode::kInvalidArgument},     // invalid PTX or kernel file
    {220, 220, StatusCode::kDeviceLost},          // uncorrectable NVLink error
    {221, 223, StatusCode::kUnavailable},         // no JIT compiler, unsupported PTX version
    {226, 226, StatusCode::kDeviceLost},          // contained fault
    {301, 301, StatusCode::kNotFound},            // file not found
    {302, 303, StatusCode::kUnavailable},         // a library the driver needs
    {500, 500, StatusCode::kNotFound},            // symbol not found
    {700, 700, StatusCode::kDeviceLost},          // illegal address
    {701, 701, StatusCode::kResourceExhausted},   // launch out of resources
    {702, 702, StatusCode::kDeviceLost},          // launch timeout
    {704, 705, StatusCode::kFailedPrecondition},  // peer access already or not enabled
    {709, 710, StatusCode::kDeviceLost},          // context destroyed, device assert
    {711, 711, StatusCode::kResourceExhausted},   // too many peers
    {712, 713, StatusCode::kFailedPrecondition},  // host memory already or not registered
    {714, 719, StatusCode::kDeviceLost},          // stack, instruction, alignment, launch failed
    {720, 720, StatusCode::kInvalidArgument},     // cooperative launch too large
    {800, 800, StatusCode::kUnavailable},         // not permitted
    {801, 801, StatusCode::kUnimplemented},       // not supported
    {802, 804, StatusCode::kUnavailable},  // system not ready, driver mismatch, compatibility
    {1052, 1052, StatusCode::kResourceExhausted},  // HIP: runtime memory
};

}  // namespace

StatusCode map_gpu_error(int error) {
  for (const ErrorRange& range : kRanges) {
    if (error >= range.first && error <= range.last) return range.code;
  }
  return StatusCode::kInternal;
}

}  // namespace stagecoach
