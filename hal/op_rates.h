#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hal/op_call.h"

namespace stagecoach {

/// What the time of an operation depends on, on a given device. Plain data.
struct OpShape {
  OpKind kind = OpKind::kAdd;
  DType dtype = DType::kF32;  ///< of its first operand that holds numbers
  /// What of a product's operands makes a kernel another one: "nt" (a as it is, b transposed), "+"
  /// where the output is added to, ">fp32" where it is wider than the operands. Of attention:
  /// "dropout", "window", "sinks", "documents". Empty: nothing.
  std::string layout;
  /// Products: rows, columns, depth, and groups. Attention: rows, sequence, width of all heads and
  /// of one, and keys seen. Loss over a vocabulary: rows, vocabulary, width. Else: work.
  std::vector<int64_t> sizes;
  double work = 0;  ///< FLOP where arithmetic decides (see is_arithmetic), else bytes of operands

  bool operator==(const OpShape&) const = default;
};

/// The shape of a call. Pure.
OpShape op_shape(const OpCall& call);

/// Whether arithmetic decides how long operations of a kind take: products, attention, and losses
/// over a vocabulary. Others are bound by the bytes of their operands.
bool is_arithmetic(OpKind kind);

/// An operation and how long it took among others of its layer.
struct TimedOp {
  OpShape shape;
  double time_ns = 0;
};

/// How long operations take on a device, from some that were timed. Arithmetic takes its FLOP by a
/// rate: that of the timed ones of its kind that are most alike, the more alike the more it counts;
/// of another layout only where there is none of its own.
/// What is bound by bytes lies on lines between timed ones of its kind. Plain data.
class OpRates {
 public:
  /// `time_ns` above 0. Another of the same shape is taken for the same operation: the mean counts.
  void add(const TimedOp& op);
  const std::vector<TimedOp>& ops() const { return ops_; }
  bool is_empty() const { return ops_.empty(); }

  /// Whether any operation of this kind and of an element type as wide was timed.
  bool knows(OpKind kind, DType dtype) const;
  /// Of a kind that it knows. Kernels shorter than kLeastOpNs are not believed in.
  double time_ns(const OpShape& shape) const;

  static constexpr double kLeastOpNs = 1000;

 private:
  std::vector<TimedOp> ops_;
  std::vector<int> counts_;  ///< how many each is the mean of
};

}  // namespace stagecoach
