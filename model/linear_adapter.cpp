#include "model/linear_adapter.h"

#include <numeric>

#include "core/dtype.h"
#include "scheduler/parameter_block.h"

namespace stagecoach {

namespace {

/// `rows` rows of `matrix` from `first` on.
TensorView rows_of(TensorView matrix, int64_t first, int64_t rows) {
  int64_t columns = matrix.shape.dims[1];
  matrix.shape = Shape{rows, columns};
  matrix.memory =
      matrix.memory.slice(first * columns * dtype_size_bytes(matrix.dtype), matrix.size_bytes());
  return matrix;
}

float rounded(double value, DType dtype) {
  auto number = static_cast<float>(value);
  if (dtype == DType::kBF16) return to_float(from_float<BFloat16>(number));
  if (dtype == DType::kF16) return to_float(from_float<Float16>(number));
  return number;
}

}  // namespace

AdapterFactors::AdapterFactors(double scale, int64_t rank, int most_parts, DType dtype)
    : rank_(rank), most_parts_(most_parts), terms_{rounded(scale, dtype)} {
  float rest = rounded(scale - static_cast<double>(terms_[0]), dtype);
  if (dtype != DType::kF32 && rest != 0) terms_.push_back(rest);
  element_count_ = place(most_parts_ + 1, 0, 0);
}

int64_t AdapterFactors::place(int parts, int part, int term) const {
  auto matrix = [this](int count) {
    return align_up(rank_ * rank_ * count, ParameterBlock::kAlignmentElements);
  };
  int64_t first = 0;
  for (int count = 1; count < parts; ++count) first += count * terms() * matrix(count);
  return first + (int64_t{part} * terms() + term) * matrix(parts);
}

std::vector<float> AdapterFactors::values() const {
  std::vector<float> values(static_cast<size_t>(element_count_), 0.0f);
  for (int parts = 1; parts <= most_parts_; ++parts) {
    for (int part = 0; part < parts; ++part) {
      for (int term = 0; term < terms(); ++term) {
        int64_t first = place(parts, part, term);
        for (int64_t i = 0; i < rank_; ++i) {
          values[static_cast<size_t>(first + i * parts * rank_ + part * rank_ + i)] =
              terms_[static_cast<size_t>(term)];
        }
      }
    }
  }
  return values;
}

void LinearAdapter::declare(SegmentIo& io) const {
  for (int own : {inner, again, expanded, product, factor}) {
    if (own < 0) continue;
    io.writes.push_back(own);
    io.scratch_gradients.push_back(own);
  }
  io.weight_uses.push_back(first.use);
}

double LinearAdapter::flop(int64_t rows) const {
  double flop = matmul_flop(rows, inner_columns(), in_columns) +
                matmul_flop(rows, out_columns, inner_columns());
  if (!is_direct()) flop += matmul_flop(out_columns, inner_columns(), rank);
  return flop;
}

double LinearAdapter::weight_flop(int64_t rows) const {
  return flop(rows) + matmul_flop(rows, inner_columns(), in_columns);
}

TensorView LinearAdapter::first_matrix(const TensorView& joined) const {
  return as_joined(joined, Shape{inner_columns(), in_columns});
}

TensorView LinearAdapter::factor_of(SegmentRun& run, size_t part, int term) const {
  TensorView block = parameter_of(run, factors);
  TensorView view{{}, block.dtype, Shape{rank, inner_columns()}};
  int64_t place =
      factor_places[part * static_cast<size_t>(factor_terms) + static_cast<size_t>(term)];
  view.memory = block.memory.slice(place * dtype_size_bytes(block.dtype), view.size_bytes());
  return view;
}

/// B of all columns, times scale, in `memory` unless it is there as such.
Result<TensorView> LinearAdapter::second_matrix(SegmentRun& run, const TensorView& memory,
                                                const Label& label) const {
  if (is_direct()) return parameter_of(run, parts[0].second);
  int64_t covered =
      std::accumulate(parts.begin(), parts.end(), int64_t{0},
                      [](int64_t sum, const Part& part) { return sum + part.columns; });
  if (covered != out_columns) {
    STAGECOACH_RETURN_IF_FAILED(run.stream().fill({memory.memory, 0, 4, label}));
  }
  for (size_t part = 0; part < parts.size(); ++part) {
    for (int term = 0; term < factor_terms; ++term) {
      Ops::Matmul request{};
      request.out = rows_of(memory, parts[part].first_column, parts[part].columns);
      request.a = parameter_of(run, parts[part].second);
      request.b = factor_of(run, part, term);
      request.accumulate = term > 0;
      request.label = label;
      STAGECOACH_RETURN_IF_FAILED(run.ops().matmul(run.stream(), request));
    }
  }
  return memory;
}

Status LinearAdapter::multiply_first(SegmentRun& run, const TensorView& in, const TensorView& out,
                                     const Label& label) const {
  Ops::Matmul request{};
  request.out = out;
  request.a = in;
  request.b = first_matrix(parameter_of(run, first));
  request.transpose_b = true;
  request.label = label;
  return run.ops().matmul(run.stream(), request).status();
}

Status LinearAdapter::forward(SegmentRun& run, const TensorView& in, const TensorView& out,
                              const Label& label) const {
  TensorView reduced = run.activation(inner);
  STAGECOACH_RETURN_IF_ERROR(multiply_first(run, in, reduced, label));
  TensorView memory = is_direct() ? TensorView{} : run.activation(expanded);
  Ops::Matmul up{};
  up.out = out;
  up.a = reduced;
  STAGECOACH_ASSIGN_OR_RETURN(up.b, second_matrix(run, memory, label));
  up.transpose_b = true;
  up.accumulate = true;
  up.label = label;
  return run.ops().matmul(run.stream(), up).status();
}

Status LinearAdapter::backward_input(SegmentRun& run, const TensorView& out_grad,
                                     const TensorView& in_grad, const Label& label) const {
  TensorView memory = is_direct() ? TensorView{} : run.gradient(expanded);
  Ops::Matmul up{};
  up.out = run.gradient(inner);
  up.a = out_grad;
  STAGECOACH_ASSIGN_OR_RETURN(up.b, second_matrix(run, memory, label));
  up.label = label;
  STAGECOACH_RETURN_IF_FAILED(run.ops().matmul(run.stream(), up));
  if (in_grad.is_none()) return Status::ok();
  Ops::Matmul down{};
  down.out = in_grad;
  down.a = up.out;
  down.b = first_matrix(parameter_of(run, first));
  down.accumulate = true;
  down.label = label;
  return run.ops().matmul(run.stream(), down).status();
}

Status LinearAdapter::backward_weight(SegmentRun& run, const TensorView& in,
                                      const TensorView& out_grad, const Label& label) const {
  Ops::Matmul down{};
  down.out = first_matrix(gradient_of(run, first));
  down.a = run.gradient(inner);
  down.b = in;
  down.transpose_a = true;
  down.accumulate = true;
  down.label = label;
  STAGECOACH_RETURN_IF_FAILED(run.ops().matmul(run.stream(), down));
  TensorView reduced = run.gradient(again);
  STAGECOACH_RETURN_IF_ERROR(multiply_first(run, in, reduced, label));
  Ops::Matmul up{};
  up.out = is_direct() ? gradient_of(run, parts[0].second) : run.gradient(product);
  up.a = out_grad;
  up.b = reduced;
  up.transpose_a = true;
  up.accumulate = is_direct();
  up.label = label;
  STAGECOACH_RETURN_IF_FAILED(run.ops().matmul(run.stream(), up));
  if (is_direct()) return Status::ok();
  for (size_t part = 0; part < parts.size(); ++part) {
    TensorView rows = rows_of(up.out, parts[part].first_column, parts[part].columns);
    STAGECOACH_RETURN_IF_ERROR(add_second_gradient(run, part, rows, label));
  }
  return Status::ok();
}

/// Of the rows of a module, [columns, n], those columns that are its own, times scale.
Status LinearAdapter::add_second_gradient(SegmentRun& run, size_t part, const TensorView& gradient,
                                          const Label& label) const {
  TensorView whole = run.gradient(factor);
  STAGECOACH_RETURN_IF_FAILED(
      run.ops().convert(run.stream(), {whole, factor_of(run, part, 0), label}));
  for (int term = 1; term < factor_terms; ++term) {
    STAGECOACH_RETURN_IF_FAILED(
        run.ops().accumulate(run.stream(), {whole, factor_of(run, part, term), label}));
  }
  Ops::Matmul request{};
  request.out = gradient_of(run, parts[part].second);
  request.a = gradient;
  request.b = whole;
  request.transpose_b = true;
  request.accumulate = true;
  request.label = label;
  return run.ops().matmul(run.stream(), request).status();
}

}  // namespace stagecoach
