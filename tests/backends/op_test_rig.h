#pragma once

#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include "core/task_pool.h"
#include "hal/device.h"
#include "tests/backends/op_reference.h"

namespace stagecoach {

using reference::Ids;
using reference::Values;

/// A CPU device, tensors on it, and the checks every operation must pass.
class OpTestRig {
 public:
  /// Inputs differ from run to run; the seed is printed, and STAGECOACH_TEST_SEED repeats it.
  OpTestRig();

  Device& device() { return *device_; }
  std::mt19937_64& engine() { return engine_; }

  /// `count` normal numbers that `dtype` can hold exactly, times about `spread`.
  Values random(int64_t count, DType dtype = DType::kF32, double spread = 1.0);
  /// `count` ids in [0, limit).
  Ids random_ids(int64_t count, int64_t limit);

  /// A device tensor holding `values`, rounded.
  TensorView tensor(DType dtype, const Shape& shape, const Values& values);
  TensorView tensor(const Ids& ids);
  /// A device tensor of NaN (of -1 when integer).
  TensorView poisoned(DType dtype, const Shape& shape);
  /// What a tensor holds now.
  Values read(const TensorView& tensor);
  /// Its bytes.
  std::vector<std::byte> bytes(const TensorView& tensor);

  /// Validates and runs `call` with pools of 1, 2, 3, 4 threads and once more with 1, from the same
  /// contents of the outputs; expects success and the same bits each time.
  void run(const OpCall& call);
  /// Validates and runs once with two threads.
  Status run_once(const OpCall& call);

 private:
  std::unique_ptr<Device> device_;
  std::vector<BufferHandle> buffers_;
  std::vector<std::unique_ptr<TaskPool>> pools_;
  std::mt19937_64 engine_;
};

/// A call with operands in the order ops.h states.
OpCall make_call(OpKind kind, std::initializer_list<TensorView> outputs,
                 std::initializer_list<TensorView> inputs);

/// `values` as `dtype` holds them.
Values rounded(DType dtype, Values values);
Values sum(const Values& left, const Values& right);
Values product(const Values& left, const Values& right);

/// Frobenius norm of the difference over that of `expected`; infinite when something is not finite.
double relative_error(const Values& actual, const Values& expected);
/// The largest |actual - expected| / max(1, |expected|): of logarithms, whose error is that of what
/// they are of, however near zero they lie. Infinite for other sizes or what is not finite.
double logarithm_error(const Values& actual, const Values& expected);
/// What an operation with outputs or inputs of `dtype` may be wrong by: 1e-5, or 1e-2 in 16 bits.
double tolerance(DType dtype);

}  // namespace stagecoach
