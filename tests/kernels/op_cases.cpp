// The cases of every operation. A case maker is called with a source of operands and returns one.

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "tests/kernels/op_case.h"

namespace stagecoach {

namespace {

using Maker = std::function<OpCase(CaseMaker&)>;
using Makers = std::vector<Maker>;
constexpr DType kF32 = DType::kF32;

struct RowsColumns {
  int64_t rows, columns;
};

std::vector<RowsColumns> matrix_shapes(bool large) {
  if (large) return {{1, 768}, {17, 1600}, {1000, 4096}, {3 * 1000, 1001}, {8192, 2048}};
  return {{1, 1}, {3, 17}, {100, 65}, {33, 256}};
}

HostTensor target(CaseMaker& maker, DType dtype, const Shape& shape, bool accumulate) {
  return accumulate ? maker.random(dtype, shape) : CaseMaker::poisoned(dtype, shape);
}

double largest(const HostTensor& tensor) {
  double result = 0.0;
  for (double value : tensor.values()) result = std::max(result, std::abs(value));
  return result;
}

void add_updates(Makers& makers, DType dtype, const Shape& shape) {
  makers.push_back([=](CaseMaker& m) {
    OpCase test =
        make_case("adamw", OpKind::kAdamW,
                  {m.random(kF32, shape), m.random(kF32, shape), m.random(kF32, shape, 0.1, 1.0)},
                  {m.random(dtype, shape)});
    test.call.adamw = AdamWNumbers{1e-3f, 0.9f, 0.95f, 0.1f, 7};
    test.call.epsilon = 1e-8f;
    test.call.scale = 0.25f;
    return test;
  });
  // Squares and products that are denormal, or nearly.
  makers.push_back([=](CaseMaker& m) {
    OpCase test = make_case("adamw of small numbers", OpKind::kAdamW,
                            {m.random(kF32, shape, 1e-37), m.random(kF32, shape, 1e-38),
                             m.random(kF32, shape, 1e-39, 1e-38)},
                            {m.random(dtype, shape, dtype == DType::kF16 ? 1e-7 : 1e-19)});
    test.call.adamw = AdamWNumbers{1e-3f, 0.9f, 0.95f, 0.1f, 1};
    test.call.epsilon = 1e-8f;
    return test;
  });
}

void add_masters(Makers& makers, const Shape& shape) {
  makers.push_back([=](CaseMaker& m) {
    return make_case("split master", OpKind::kSplitMaster,
                     {m.poisoned(DType::kBF16, shape), m.poisoned(DType::kI16, shape)},
                     {m.random(kF32, shape)});
  });
  makers.push_back([=](CaseMaker& m) {
    // Remainders of all signs: halves of other numbers.
    OpCase split = make_case("split master", OpKind::kSplitMaster,
                             {m.poisoned(DType::kBF16, shape), m.poisoned(DType::kI16, shape)},
                             {m.random(kF32, shape)});
    OpOutputs halves = m.forward(split);
    return make_case("join master", OpKind::kJoinMaster, {m.poisoned(kF32, shape)},
                     {halves[0], halves[1]});
  });
}

void add_elementwise(Makers& makers, DType dtype, bool large) {
  for (RowsColumns size : matrix_shapes(large)) {
    Shape shape = {size.rows, size.columns};
    for (bool accumulate : {false, true}) {
      auto two = [=, &makers](OpKind kind) {
        makers.push_back([=](CaseMaker& m) {
          OpCase test = make_case("two operands", kind, {target(m, dtype, shape, accumulate)},
                                  {m.random(dtype, shape), m.random(dtype, shape)});
          test.call.accumulate = accumulate;
          return test;
        });
      };
      two(OpKind::kGeluBackward);
      two(OpKind::kMultiply);
      if (!accumulate) two(OpKind::kAdd);
      for (float probability : {0.0f, 0.25f}) {
        makers.push_back([=](CaseMaker& m) {
          HostTensor residual = accumulate ? HostTensor() : m.random(dtype, shape);
          OpCase test =
              make_case("dropout", OpKind::kDropout, {target(m, dtype, shape, accumulate)},
                        {m.random(dtype, shape), residual});
          test.call.accumulate = accumulate;
          test.call.drop_probability = probability;
          test.call.key = RandomKey{77, 1, 2, 3, 4};
          return test;
        });
      }
      makers.push_back([=](CaseMaker& m) {
        OpCase test = make_case("squared error", OpKind::kSquaredErrorBackward,
                                {target(m, dtype, shape, accumulate)},
                                {m.random(dtype, shape), m.random(kF32, shape)});
        test.call.scale = 0.5f;
        test.call.accumulate = accumulate;
        return test;
      });
    }
    makers.push_back([=](CaseMaker& m) {
      return make_case("gelu", OpKind::kGeluForward, {m.poisoned(dtype, shape)},
                       {m.random(dtype, shape, 3.0)});
    });
    makers.push_back([=](CaseMaker& m) {
      return make_case("accumulate", OpKind::kAccumulate, {m.random(kF32, shape)},
                       {m.random(dtype, shape)});
    });
    for (DType to : {kF32, DType::kBF16, DType::kF16}) {
      makers.push_back([=](CaseMaker& m) {
        return make_case("convert", OpKind::kConvert, {m.poisoned(to, shape)},
                         {m.random(dtype, shape, 100.0)});
      });
    }
    add_updates(makers, dtype, shape);
    add_masters(makers, shape);
  }
}

void add_gated(Makers& makers, DType dtype, bool large) {
  for (RowsColumns size : matrix_shapes(large)) {
    Shape narrow = {size.rows, size.columns};
    for (bool packed : {false, true}) {
      Shape gate = {size.rows, packed ? 2 * size.columns : size.columns};
      makers.push_back([=](CaseMaker& m) {
        HostTensor up = packed ? HostTensor() : m.random(dtype, narrow);
        return make_case("gated silu", OpKind::kGatedSiluForward, {m.poisoned(dtype, narrow)},
                         {m.random(dtype, gate), up});
      });
      makers.push_back([=](CaseMaker& m) {
        HostTensor up = packed ? HostTensor() : m.random(dtype, narrow);
        HostTensor up_grad = packed ? HostTensor() : m.poisoned(dtype, narrow);
        return make_case("gated silu backward", OpKind::kGatedSiluBackward,
                         {m.poisoned(dtype, gate), up_grad},
                         {m.random(dtype, narrow), m.random(dtype, gate), up});
      });
    }
  }
}

/// Gates and ups in turn, many of them beyond the limit.
void add_gated_pairs(Makers& makers, DType dtype, bool large) {
  for (RowsColumns size : matrix_shapes(large)) {
    Shape narrow = {size.rows, size.columns};
    Shape wide = {size.rows, 2 * size.columns};
    constexpr GatedNumbers kNumbers = {1.702f, 1.5f, 1.0f, true};
    makers.push_back([=](CaseMaker& m) {
      OpCase test = make_case("gated pairs", OpKind::kGatedSiluForward, {m.poisoned(dtype, narrow)},
                              {m.random(dtype, wide)});
      test.call.gated = kNumbers;
      return test;
    });
    makers.push_back([=](CaseMaker& m) {
      OpCase test =
          make_case("gated pairs backward", OpKind::kGatedSiluBackward, {m.poisoned(dtype, wide)},
                    {m.random(dtype, narrow), m.random(dtype, wide)});
      test.call.gated = kNumbers;
      return test;
    });
  }
}

void add_layer_norm(Makers& makers, DType dtype, bool large) {
  for (RowsColumns size : matrix_shapes(large)) {
    if (size.columns == 1) continue;
    Shape shape = {size.rows, size.columns};
    Shape row = {size.columns};
    auto forward = [=](CaseMaker& m) {
      OpCase test = make_case(
          "layer norm", OpKind::kLayerNormForward,
          {m.poisoned(dtype, shape), m.poisoned(kF32, {size.rows}), m.poisoned(kF32, {size.rows})},
          {m.random(dtype, shape, 3.0, 2.0), m.random(dtype, row), m.random(dtype, row)});
      test.call.epsilon = 1e-5f;
      return test;
    };
    makers.push_back(forward);
    for (bool flag : {false, true}) {
      makers.push_back([=](CaseMaker& m) {
        OpCase before = forward(m);
        OpOutputs saved = m.forward(before);
        OpCase test = make_case(
            "layer norm input gradient", OpKind::kLayerNormBackwardInput,
            {target(m, dtype, shape, flag)},
            {m.random(dtype, shape), before.inputs[0], before.inputs[1], saved[1], saved[2]});
        test.call.accumulate = flag;
        return test;
      });
      makers.push_back([=](CaseMaker& m) {
        OpCase before = forward(m);
        OpOutputs saved = m.forward(before);
        HostTensor bias_grad = flag ? m.random(kF32, row) : HostTensor();
        return make_case("layer norm weight gradient", OpKind::kLayerNormBackwardWeight,
                         {m.random(kF32, row), bias_grad},
                         {m.random(dtype, shape), before.inputs[0], saved[1], saved[2]});
      });
    }
  }
}

void add_rms_norm(Makers& makers, DType dtype, bool large) {
  for (RowsColumns size : matrix_shapes(large)) {
    Shape shape = {size.rows, size.columns};
    Shape row = {size.columns};
    for (bool flag : {false, true}) {
      auto forward = [=](CaseMaker& m) {
        HostTensor sum = flag ? m.poisoned(dtype, shape) : HostTensor();
        HostTensor residual = flag ? m.random(dtype, shape) : HostTensor();
        OpCase test = make_case("rms norm", OpKind::kRmsNormForward,
                                {m.poisoned(dtype, shape), m.poisoned(kF32, {size.rows}), sum},
                                {m.random(dtype, shape), m.random(dtype, row), residual});
        test.call.epsilon = 1e-6f;
        return test;
      };
      makers.push_back(forward);
      makers.push_back([=](CaseMaker& m) {
        OpCase before = forward(m);
        OpOutputs saved = m.forward(before);
        OpCase test = make_case("rms norm input gradient", OpKind::kRmsNormBackwardInput,
                                {target(m, dtype, shape, flag)},
                                {m.random(dtype, shape), flag ? saved[2] : before.inputs[0],
                                 before.inputs[1], saved[1]});
        test.call.accumulate = flag;
        // A row of few columns nearly follows its own direction, where the gradient is zero.
        test.largest_term = largest(test.inputs[0]) * largest(test.inputs[2]) * largest(saved[1]);
        return test;
      });
      makers.push_back([=](CaseMaker& m) {
        OpCase before = forward(m);
        OpOutputs saved = m.forward(before);
        return make_case("rms norm weight gradient", OpKind::kRmsNormBackwardWeight,
                         {m.random(kF32, row)},
                         {m.random(dtype, shape), flag ? saved[2] : before.inputs[0], saved[1]});
      });
    }
  }
}

struct HeadCase {
  int64_t sequences, sequence, heads, kv_heads, dim;
};

std::vector<HeadCase> head_cases(bool large) {
  if (large) {
    return {{3, 1, 4, 4, 64},   {3, 17, 12, 12, 64}, {2, 1000, 16, 8, 128}, {1, 1000, 8, 2, 80},
            {1, 333, 8, 4, 96}, {1, 300, 4, 1, 256}, {2, 129, 4, 4, 16},    {1, 65, 6, 3, 32}};
  }
  return {{1, 1, 1, 1, 16},   {2, 17, 4, 2, 32},  {1, 70, 2, 1, 80},
          {1, 40, 1, 1, 128}, {1, 35, 2, 1, 256}, {1, 70, 2, 2, 64}};
}

void set_heads(OpCase& test, const HeadCase& size) {
  test.call.sequence = size.sequence;
  test.call.heads = size.heads;
  test.call.kv_heads = size.kv_heads;
  test.call.head_dim = size.dim;
}

void add_attention(Makers& makers, DType dtype, bool large) {
  for (HeadCase size : head_cases(large)) {
    int64_t rows = size.sequences * size.sequence;
    Shape qkv = {rows, (size.heads + 2 * size.kv_heads) * size.dim};
    Shape out = {rows, size.heads * size.dim};
    for (float probability : {0.0f, 0.2f}) {
      auto set = [=](OpCase& test) {
        set_heads(test, size);
        test.call.scale = 1.0f / std::sqrt(static_cast<float>(size.dim));
        test.call.drop_probability = probability;
        test.call.key = RandomKey{5, 4, 3, 2, 1};
      };
      auto forward = [=](CaseMaker& m) {
        OpCase test = make_case("attention", OpKind::kAttentionForward,
                                {m.poisoned(dtype, out), m.poisoned(kF32, {rows, size.heads})},
                                {m.random(dtype, qkv)});
        set(test);
        return test;
      };
      makers.push_back(forward);
      makers.push_back([=](CaseMaker& m) {
        OpCase before = forward(m);
        OpOutputs saved = m.forward(before);
        OpCase test =
            make_case("attention backward", OpKind::kAttentionBackward, {m.poisoned(dtype, qkv)},
                      {m.random(dtype, out), before.inputs[0], saved[0], saved[1]});
        set(test);
        return test;
      });
    }
  }
}

/// Windows, documents and sinks of an attention case.
struct MaskCase {
  int64_t window = 0, document = 0;  ///< 0: none
  bool has_sinks = false;
};

std::vector<MaskCase> mask_cases(bool large) {
  if (large) return {{128, 0, true}, {0, 90, false}, {33, 200, true}, {0, 0, true}, {1, 0, false}};
  return {{9, 0, true}, {0, 13, false}, {33, 20, true}, {1, 0, false}};
}

void add_masked_attention(Makers& makers, DType dtype, bool large) {
  bool is_turn = false;
  for (HeadCase size : head_cases(large)) {
    is_turn = !is_turn;
    for (MaskCase masks : mask_cases(large)) {
      // Emulation is slow: every other pair, all masks and all sizes among them.
      is_turn = !is_turn;
      if (!large && !is_turn) continue;
      int64_t rows = size.sequences * size.sequence;
      Shape qkv = {rows, (size.heads + 2 * size.kv_heads) * size.dim};
      Shape out = {rows, size.heads * size.dim};
      float probability = masks.document == 90 || masks.document == 13 ? 0.2f : 0.0f;
      auto set = [=](OpCase& test) {
        set_heads(test, size);
        test.call.scale = 1.0f / std::sqrt(static_cast<float>(size.dim));
        test.call.window = masks.window;
        test.call.drop_probability = probability;
        test.call.key = RandomKey{5, 4, 3, 2, 1};
      };
      auto forward = [=](CaseMaker& m) {
        HostTensor sinks = masks.has_sinks ? m.random(dtype, {size.heads}, 3.0) : HostTensor();
        HostTensor starts = masks.document == 0
                                ? HostTensor()
                                : m.document_starts(rows, size.sequence, masks.document);
        OpCase test = make_case("masked attention", OpKind::kAttentionForward,
                                {m.poisoned(dtype, out), m.poisoned(kF32, {rows, size.heads})},
                                {m.random(dtype, qkv), sinks, starts});
        set(test);
        return test;
      };
      makers.push_back(forward);
      makers.push_back([=](CaseMaker& m) {
        OpCase before = forward(m);
        OpOutputs saved = m.forward(before);
        OpCase test = make_case("masked attention backward", OpKind::kAttentionBackward,
                                {m.poisoned(dtype, qkv)},
                                {m.random(dtype, out), before.inputs[0], saved[0], saved[1],
                                 before.inputs[1], before.inputs[2]});
        set(test);
        return test;
      });
      if (!masks.has_sinks) continue;
      makers.push_back([=](CaseMaker& m) {
        OpCase before = forward(m);
        OpOutputs saved = m.forward(before);
        OpCase test = make_case("sinks' gradient", OpKind::kAttentionSinkBackward,
                                {m.random(kF32, {size.heads})},
                                {m.random(dtype, out), saved[0], saved[1], before.inputs[1]});
        set_heads(test, size);
        test.call.kv_heads = size.heads;
        return test;
      });
    }
  }
}

void add_head_ops(Makers& makers, DType dtype, bool large) {
  for (HeadCase size : head_cases(large)) {
    int64_t rows = size.sequences * size.sequence;
    Shape qkv = {rows, (size.heads + 2 * size.kv_heads) * size.dim};
    Shape weight = {size.dim};
    for (bool inverse : {false, true}) {
      makers.push_back([=](CaseMaker& m) {
        Shape angles = {size.sequence + 3, size.dim / 2};
        OpCase test = make_case("rotary", OpKind::kRotary, {m.random(dtype, qkv)},
                                {m.random(kF32, angles), m.random(kF32, angles)});
        set_heads(test, size);
        test.call.inverse = inverse;
        return test;
      });
    }
    auto forward = [=](CaseMaker& m) {
      OpCase test =
          make_case("qk norm", OpKind::kQkNormForward,
                    {m.poisoned(dtype, qkv), m.poisoned(kF32, {rows, size.heads + size.kv_heads})},
                    {m.random(dtype, qkv), m.random(dtype, weight), m.random(dtype, weight)});
      set_heads(test, size);
      test.call.sequence = 0;
      test.call.epsilon = 1e-6f;
      return test;
    };
    makers.push_back(forward);
    makers.push_back([=](CaseMaker& m) {
      OpCase before = forward(m);
      OpOutputs saved = m.forward(before);
      OpCase test = make_case(
          "qk norm input gradient", OpKind::kQkNormBackwardInput, {m.poisoned(dtype, qkv)},
          {m.random(dtype, qkv), before.inputs[0], before.inputs[1], before.inputs[2], saved[1]});
      set_heads(test, size);
      return test;
    });
    makers.push_back([=](CaseMaker& m) {
      OpCase before = forward(m);
      OpOutputs saved = m.forward(before);
      OpCase test = make_case("qk norm weight gradient", OpKind::kQkNormBackwardWeight,
                              {m.random(kF32, weight), m.random(kF32, weight)},
                              {m.random(dtype, qkv), before.inputs[0], saved[1]});
      set_heads(test, size);
      return test;
    });
  }
}

struct MatmulCase {
  int64_t m, n, k;
};

void add_matmul(Makers& makers, DType dtype, bool large) {
  std::vector<MatmulCase> sizes = {{1, 1, 1}, {17, 33, 65}, {130, 140, 96}, {64, 129, 20}};
  if (large) {
    sizes = {
        {1, 768, 768}, {1000, 1001, 333}, {3000, 768, 3072}, {17, 50257, 64}, {2048, 2048, 2048}};
  }
  for (MatmulCase size : sizes) {
    for (int form = 0; form < 4; ++form) {
      bool ta = form / 2 != 0, tb = form % 2 != 0;
      for (DType out : {dtype, kF32}) {
        for (bool accumulate : {false, true}) {
          makers.push_back([=](CaseMaker& m) {
            HostTensor bias = accumulate ? HostTensor() : m.random(dtype, {size.n});
            OpCase test = make_case(
                fmt::format("matmul {}x{}x{}", size.m, size.n, size.k), OpKind::kMatmul,
                {target(m, out, {size.m, size.n}, accumulate)},
                {m.random(dtype, ta ? Shape{size.k, size.m} : Shape{size.m, size.k}),
                 m.random(dtype, tb ? Shape{size.n, size.k} : Shape{size.k, size.n}), bias});
            test.call.transpose_a = ta;
            test.call.transpose_b = tb;
            test.call.accumulate = accumulate;
            return test;
          });
        }
      }
    }
  }
}

struct VocabularyCase {
  int64_t sequences, sequence, columns, vocabulary;
};

std::vector<VocabularyCase> vocabulary_cases(bool large) {
  if (large) return {{3, 1, 64, 50257}, {3, 17, 768, 50257}, {3, 1000, 128, 151936}};
  return {{1, 1, 1, 1}, {3, 17, 24, 133}, {2, 70, 40, 300}};
}

void add_embedding(Makers& makers, DType dtype, bool large) {
  for (VocabularyCase size : vocabulary_cases(large)) {
    int64_t rows = size.sequences * size.sequence;
    Shape out = {rows, size.columns};
    Shape table = {size.vocabulary, size.columns};
    Shape positions = {size.sequence + 2, size.columns};
    // Ids of a tenth of the vocabulary, so that some repeat.
    int64_t used = std::max<int64_t>(size.vocabulary / 10, 1);
    for (bool with_positions : {false, true}) {
      makers.push_back([=](CaseMaker& m) {
        HostTensor more = with_positions ? m.random(dtype, positions) : HostTensor();
        OpCase test = make_case("embedding", OpKind::kEmbeddingForward, {m.poisoned(dtype, out)},
                                {m.ids(rows, 0, size.vocabulary), m.random(dtype, table), more});
        test.call.sequence = size.sequence;
        return test;
      });
      makers.push_back([=](CaseMaker& m) {
        HostTensor more = with_positions ? m.random(kF32, positions) : HostTensor();
        OpCase test =
            make_case("embedding backward", OpKind::kEmbeddingBackward,
                      {m.random(kF32, table), more}, {m.random(dtype, out), m.ids(rows, 0, used)});
        test.call.sequence = size.sequence;
        return test;
      });
    }
  }
}

void add_cross_entropy(Makers& makers, DType dtype, bool large, const LossTerms& terms) {
  for (VocabularyCase size : vocabulary_cases(large)) {
    int64_t rows = size.sequences * size.sequence;
    Shape hidden = {rows, size.columns};
    Shape weight = {size.vocabulary, size.columns};
    double spread = 1.0 / std::sqrt(static_cast<double>(size.columns));
    auto forward = [=](CaseMaker& m) {
      OpCase test = make_case("cross entropy", OpKind::kLinearCrossEntropyForward,
                              {m.poisoned(kF32, {rows}), m.poisoned(kF32, {rows})},
                              {m.random(dtype, hidden), m.random(dtype, weight, spread),
                               m.ids(rows, -1, size.vocabulary)});
      test.call.loss_terms = terms;
      return test;
    };
    if (size.vocabulary > 1) makers.push_back(forward);
    for (bool accumulate : {false, true}) {
      makers.push_back([=](CaseMaker& m) {
        OpCase before = forward(m);
        OpOutputs saved = m.forward(before);
        OpCase test =
            make_case("cross entropy hidden gradient", OpKind::kLinearCrossEntropyBackwardInput,
                      {target(m, dtype, hidden, accumulate)},
                      {before.inputs[0], before.inputs[1], before.inputs[2], saved[1]});
        test.call.accumulate = accumulate;
        test.call.loss_terms = terms;
        test.call.scale = accumulate ? 1.0f / static_cast<float>(rows) : 1.0f;
        return test;
      });
    }
    makers.push_back([=](CaseMaker& m) {
      OpCase before = forward(m);
      OpOutputs saved = m.forward(before);
      OpCase test = make_case("cross entropy weight gradient",
                              OpKind::kLinearCrossEntropyBackwardWeight, {m.zeros(kF32, weight)},
                              {before.inputs[0], before.inputs[1], before.inputs[2], saved[1]});
      test.call.loss_terms = terms;
      test.call.scale = 1.0f / static_cast<float>(rows);
      return test;
    });
  }
}

void add_reductions(Makers& makers, DType dtype, bool large) {
  std::vector<RowsColumns> shapes = matrix_shapes(large);
  shapes.push_back({3, 50000});
  for (RowsColumns size : shapes) {
    Shape shape = {size.rows, size.columns};
    makers.push_back([=](CaseMaker& m) {
      return make_case("column sum", OpKind::kColumnSum, {m.random(kF32, {size.columns})},
                       {m.random(dtype, shape)});
    });
    makers.push_back([=](CaseMaker& m) {
      return make_case("sum of squares", OpKind::kSumOfSquares, {m.poisoned(DType::kF64, {1})},
                       {m.random(dtype, shape)});
    });
    makers.push_back([=](CaseMaker& m) {
      return make_case("checksum", OpKind::kChecksum, {m.poisoned(DType::kU64, {1})},
                       {m.random(kF32, shape)});
    });
    makers.push_back([=](CaseMaker& m) {
      OpCase test = make_case("finite check", OpKind::kFiniteCheck, {m.poisoned(DType::kU64, {1})},
                              {m.random(dtype, shape)});
      // The last element becomes NaN.
      auto element = static_cast<size_t>(dtype_size_bytes(dtype));
      for (size_t i = 0; i < element; ++i) test.inputs[0].bytes.rbegin()[i] = std::byte{0xff};
      return test;
    });
    makers.push_back([=](CaseMaker& m) {
      return make_case("squared error", OpKind::kSquaredErrorForward,
                       {m.poisoned(kF32, {size.rows})},
                       {m.random(dtype, shape), m.random(kF32, shape)});
    });
  }
}

}  // namespace

std::vector<Maker> op_cases(DType dtype, bool large) {
  Makers makers;
  add_elementwise(makers, dtype, large);
  add_gated(makers, dtype, large);
  add_gated_pairs(makers, dtype, large);
  add_layer_norm(makers, dtype, large);
  add_rms_norm(makers, dtype, large);
  add_head_ops(makers, dtype, large);
  add_attention(makers, dtype, large);
  add_masked_attention(makers, dtype, large);
  add_matmul(makers, dtype, large);
  add_embedding(makers, dtype, large);
  add_cross_entropy(makers, dtype, large, {});
  add_cross_entropy(makers, dtype, large, {0.01f, 0.1f});
  add_reductions(makers, dtype, large);
  add_experts(makers, dtype, large);
  return makers;
}

}  // namespace stagecoach
