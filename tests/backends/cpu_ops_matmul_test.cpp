#include <gtest/gtest.h>

#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

struct MatmulCase {
  int64_t m, n, k;
};

constexpr MatmulCase kCases[] = {{1, 1, 1},      {1, 257, 64},   {17, 33, 5},
                                 {100, 192, 65}, {300, 257, 80}, {513, 65, 100}};

class MatmulTest : public testing::TestWithParam<DType> {
 protected:
  struct Form {
    bool transpose_a, transpose_b, accumulate, biased;
    DType out;
  };

  void check(const MatmulCase& shape, const Form& form) {
    DType storage = GetParam();
    Values a = rig_.random(shape.m * shape.k, storage);
    Values b = rig_.random(shape.k * shape.n, storage);
    Values bias = rig_.random(shape.n, storage);
    Values old = rig_.random(shape.m * shape.n, form.out);
    Values expected =
        reference::matmul(a, b, shape.m, shape.n, shape.k, form.transpose_a, form.transpose_b);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (form.biased) expected[i] += bias[i % bias.size()];
      if (form.accumulate) expected[i] += old[i];
    }
    Shape a_shape = form.transpose_a ? Shape{shape.k, shape.m} : Shape{shape.m, shape.k};
    Shape b_shape = form.transpose_b ? Shape{shape.n, shape.k} : Shape{shape.k, shape.n};
    Shape out_shape = {shape.m, shape.n};
    TensorView none;
    TensorView out = form.accumulate ? rig_.tensor(form.out, out_shape, old)
                                     : rig_.poisoned(form.out, out_shape);
    OpCall call = make_call(OpKind::kMatmul, {out},
                            {rig_.tensor(storage, a_shape, a), rig_.tensor(storage, b_shape, b),
                             form.biased ? rig_.tensor(storage, {shape.n}, bias) : none});
    call.transpose_a = form.transpose_a;
    call.transpose_b = form.transpose_b;
    call.accumulate = form.accumulate;
    rig_.run(call);
    EXPECT_LE(relative_error(rig_.read(out), expected), tolerance(form.out))
        << shape.m << " x " << shape.n << " x " << shape.k << " a" << form.transpose_a << " b"
        << form.transpose_b << " accumulate " << form.accumulate << " bias " << form.biased;
  }

  OpTestRig rig_;
};

TEST_P(MatmulTest, EveryTranspose) {
  for (const MatmulCase& shape : kCases) {
    for (int form = 0; form < 4; ++form) {
      check(shape, {form % 2 == 1, form / 2 == 1, false, false, GetParam()});
    }
  }
}

TEST_P(MatmulTest, EveryEpilogue) {
  for (const MatmulCase& shape : kCases) {
    for (int form = 0; form < 8; ++form) {
      DType out = form / 4 == 1 ? DType::kF32 : GetParam();
      check(shape, {form % 2 == 1, false, form % 2 == 1, form / 2 % 2 == 1, out});
    }
  }
}

TEST_P(MatmulTest, ColumnSumAddsToWhatIsThere) {
  for (const MatmulCase& shape : kCases) {
    Values in = rig_.random(shape.m * shape.n, GetParam());
    Values old = rig_.random(shape.n);
    TensorView out = rig_.tensor(DType::kF32, {shape.n}, old);
    rig_.run(
        make_call(OpKind::kColumnSum, {out}, {rig_.tensor(GetParam(), {shape.m, shape.n}, in)}));
    EXPECT_LE(relative_error(rig_.read(out), sum(old, reference::column_sum(in, shape.n))), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, MatmulTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
