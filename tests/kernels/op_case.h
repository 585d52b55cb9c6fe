#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/gpu/gpu_library.h"
#include "core/task_pool.h"
#include "hal/device.h"

namespace stagecoach {

/// A tensor's contents; empty for none.
struct HostTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;

  bool is_none() const { return bytes.empty(); }
  std::vector<double> values() const;
};

/// An operation with the contents of its operands (of outputs: before it runs).
struct OpCase {
  std::string name;
  OpCall call;
  /// The largest of the terms whose difference an output is, where it may nearly cancel: errors are
  /// then measured against the terms' too. 0 elsewhere.
  double largest_term = 0.0;
  std::array<HostTensor, OpCall::kMaxOutputs> outputs;
  std::array<HostTensor, OpCall::kMaxInputs> inputs;
};

using OpOutputs = std::array<HostTensor, OpCall::kMaxOutputs>;

/// Runs cases on one device. Buffers live for the length of a run.
class OpMachine {
 public:
  virtual ~OpMachine() = default;
  virtual Result<OpOutputs> run(const OpCase& test) = 0;
};

/// The CPU oracle, called directly.
std::unique_ptr<OpMachine> oracle_machine();
/// The GPU kernels emulated on the host; `library`, which outlives the machine, computes what it
/// serves of an op.
std::unique_ptr<OpMachine> emulated_machine(GpuLibrary* library = nullptr);
/// Ops of `device`, which must outlive the machine.
std::unique_ptr<OpMachine> device_machine(Device& device);

/// The same case with every bf16 and fp16 operand as fp32.
OpCase in_fp32(const OpCase& test);

/// Makes operands; the same seed gives the same ones.
class CaseMaker {
 public:
  explicit CaseMaker(uint64_t seed) : engine_(seed), oracle_(oracle_machine()) {}

  HostTensor random(DType dtype, const Shape& shape, double spread = 1.0, double mean = 0.0);
  HostTensor ids(int64_t count, int64_t least, int64_t limit);
  /// Of documents of 1 to `longest` rows, cut off where a sequence ends.
  HostTensor document_starts(int64_t rows, int64_t sequence, int64_t longest);
  static HostTensor poisoned(DType dtype, const Shape& shape);
  static HostTensor zeros(DType dtype, const Shape& shape);
  /// What the oracle gives: for what a backward pass reads of the forward pass.
  OpOutputs forward(const OpCase& test);

 private:
  std::mt19937_64 engine_;
  std::unique_ptr<OpMachine> oracle_;
};

OpCase make_case(std::string name, OpKind kind, std::initializer_list<HostTensor> outputs,
                 std::initializer_list<HostTensor> inputs);

/// Every operation in storage `dtype` over odd shapes: small ones for emulation, or those that
/// hardware is to be proven with. Made one by one, since large ones hold much memory.
std::vector<std::function<OpCase(CaseMaker&)>> op_cases(DType dtype, bool large);

/// Those of experts, which `op_cases` has too.
void add_experts(std::vector<std::function<OpCase(CaseMaker&)>>& makers, DType dtype, bool large);

/// "" when `actual` is as close to the oracle as storage allows: integers, fp64 and all of adamw
/// equal; relative
/// Frobenius error at most 1e-5 (1e-2 in 16 bits); and for each row of 16-bit outputs an error, as
/// measured against fp32 arithmetic, at most twice the oracle's; plus what fp32 loses of terms that
/// cancel. Else what is wrong.
std::string compare_outputs(const OpCase& test, const OpOutputs& actual, const OpOutputs& oracle,
                            const OpOutputs& exact);

}  // namespace stagecoach
