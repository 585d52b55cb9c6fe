#pragma once

#include <cstdint>

#include "backends/cuda/cudnn_functions.h"

namespace stagecoach {

/// What the fake cuDNN is told to do and what it saw. One in the process.
struct FakeCudnn {
  size_t version = 91900;
  int create_error = 0;                 ///< what cudnnCreate returns
  int finalize_error = 0;               ///< what finalizing an operation graph returns
  int execute_error = 0;                ///< what cudnnBackendExecute returns
  bool finds_nothing = false;           ///< there is no engine
  bool notes_random_bits = false;       ///< engines note that their bits may differ
  int64_t workspace_bytes_a_score = 2;  ///< of backward passes that keep all scores' gradients

  int64_t heuristics = 0;
  int64_t executions = 0;
  int64_t objects = 0;  ///< handles and descriptors that exist
  void* stream = nullptr;
};

/// The fake's state; tests put `FakeCudnn()` into it first.
FakeCudnn& fake_cudnn();

/// A cuDNN that evaluates operation graphs at once on host memory, in fp32, tensor by tensor.
/// Misuse ends the process. Thread rule: one thread at a time.
CudnnFunctions fake_cudnn_functions();

}  // namespace stagecoach
