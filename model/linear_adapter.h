#pragma once

#include <cstdint>
#include <vector>

#include "model/basic_segment.h"

namespace stagecoach {

/// scale * I for expanding the second matrices of adapters, a constant block that all layers use.
/// In 16 bits it is the sum of two parts, so that any scale keeps 16 bits or more.
class AdapterFactors {
 public:
  /// For products of up to `most_parts` matrices with adapters.
  AdapterFactors(double scale, int64_t rank, int most_parts, DType dtype);

  int64_t element_count() const { return element_count_; }
  std::vector<float> values() const;
  /// How many parts add up to the scale; 1 where the first is exact.
  int terms() const { return static_cast<int>(terms_.size()); }
  /// First element of term `term` of [rank, parts * rank], zero but for scale * I in the columns of
  /// `part`.
  int64_t place(int parts, int part, int term) const;

 private:
  int64_t rank_;
  int most_parts_;
  std::vector<float> terms_;
  int64_t element_count_ = 0;
};

/// The adapters of one product out[R, N] = in[R, K] weight, whose columns may be those of several
/// modules side by side, some with adapters: out += scale * (in A^T) B^T for each.
///
/// All of them together are two products. A is that of all modules, one behind the other [n, K],
/// n = rank * modules. B [N, n] has each module's own B, times scale, at its rows and columns and
/// zeros elsewhere; it is put together when it is needed, by a product with AdapterFactors, which
/// is exact, since device memory has B as files have it.
class LinearAdapter {
 public:
  struct Part {
    int64_t first_column = 0;  ///< of the product
    int64_t columns = 0;
    ParameterRef second;  ///< B [columns, rank]
  };

  ParameterRef first;    ///< A of all parts, one behind the other
  ParameterRef factors;  ///< the constant block
  std::vector<Part> parts;
  int64_t rank = 0;
  int64_t in_columns = 0;
  int64_t out_columns = 0;
  int factor_terms = 1;
  /// Where the factors of a part are: part * factor_terms + term.
  std::vector<int64_t> factor_places;
  /// Own extra activations [R, n], storage: in A^T, and the same once more for the weight part. It
  /// is computed again rather than saved, since recomputing it would compute the whole product.
  int inner = -1, again = -1;
  /// Own extra activations of fixed rows: [N, n] storage, [N, n] fp32 and [rank, n] fp32. -1 where
  /// B is as it is: one module of all columns and a scale of one.
  int expanded = -1, product = -1, factor = -1;

  int64_t inner_columns() const { return rank * static_cast<int64_t>(parts.size()); }
  /// Adds what the adapters need to a segment's declarations.
  void declare(SegmentIo& io) const;
  double flop(int64_t rows) const;
  /// Of the weight part.
  double weight_flop(int64_t rows) const;
  /// Adds to `out`, which holds the product.
  Status forward(SegmentRun& run, const TensorView& in, const TensorView& out,
                 const Label& label) const;
  /// From the gradient of the product: that of `inner`, and adds to `in_grad`, which may be none.
  Status backward_input(SegmentRun& run, const TensorView& out_grad, const TensorView& in_grad,
                        const Label& label) const;
  /// Adds to the gradients of both matrices; after backward_input.
  Status backward_weight(SegmentRun& run, const TensorView& in, const TensorView& out_grad,
                         const Label& label) const;

 private:
  bool is_direct() const { return expanded < 0; }
  TensorView first_matrix(const TensorView& joined) const;
  Status multiply_first(SegmentRun& run, const TensorView& in, const TensorView& out,
                        const Label& label) const;
  Result<TensorView> second_matrix(SegmentRun& run, const TensorView& memory,
                                   const Label& label) const;
  TensorView factor_of(SegmentRun& run, size_t part, int term) const;
  Status add_second_gradient(SegmentRun& run, size_t part, const TensorView& gradient,
                             const Label& label) const;
};

}  // namespace stagecoach
