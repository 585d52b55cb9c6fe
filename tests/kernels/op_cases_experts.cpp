// The cases of the operations of experts.

#include <algorithm>
#include <array>

#include "tests/kernels/op_case.h"

namespace stagecoach {

namespace {

using Maker = std::function<OpCase(CaseMaker&)>;
constexpr DType kF32 = DType::kF32;
constexpr DType kI32 = DType::kI32;

struct ExpertCase {
  int64_t rows, experts, count, in_columns, out_columns;
  int64_t sequences = 1;

  int64_t places() const { return rows * count; }
  Shape narrow() const { return {rows, count}; }
};

std::vector<ExpertCase> expert_cases(bool large) {
  if (large) {
    return {{1, 128, 8, 192, 512}, {1000, 128, 8, 512, 384, 4}, {4096, 32, 4, 720, 1001}};
  }
  return {{1, 1, 1, 1, 1}, {5, 40, 2, 17, 9}, {90, 3, 2, 40, 136, 3}};
}

/// How rows choose and what follows from it: choices, weights, order, places, offsets.
struct Chosen {
  HostTensor logits;
  std::array<HostTensor, 5> parts;

  const HostTensor& choices() const { return parts[0]; }
  const HostTensor& weights() const { return parts[1]; }
  const HostTensor& order() const { return parts[2]; }
  const HostTensor& places() const { return parts[3]; }
  const HostTensor& offsets() const { return parts[4]; }
};

OpCase routing(CaseMaker& m, DType dtype, const ExpertCase& size, bool over_chosen) {
  OpCase test = make_case("routing", OpKind::kRouteForward,
                          {m.poisoned(kI32, size.narrow()), m.poisoned(kF32, size.narrow())},
                          {m.random(dtype, {size.rows, size.experts}, 2.0)});
  test.call.over_chosen = over_chosen;
  return test;
}

OpCase grouping(CaseMaker& m, const ExpertCase& size, const HostTensor& choices) {
  return make_case("grouping", OpKind::kGroupRows,
                   {m.poisoned(kI32, {size.places()}), m.poisoned(kI32, size.narrow()),
                    m.poisoned(kI32, {size.experts + 1})},
                   {choices});
}

Chosen choose(CaseMaker& m, DType dtype, const ExpertCase& size, bool over_chosen) {
  OpCase route = routing(m, dtype, size, over_chosen);
  OpOutputs routed = m.forward(route);
  OpOutputs grouped = m.forward(grouping(m, size, routed[0]));
  return {route.inputs[0], {routed[0], routed[1], grouped[0], grouped[1], grouped[2]}};
}

void add_routing(std::vector<Maker>& makers, DType dtype, const ExpertCase& size) {
  for (bool over_chosen : {false, true}) {
    if (size.experts > 1) {
      makers.push_back([=](CaseMaker& m) { return routing(m, dtype, size, over_chosen); });
    }
    makers.push_back([=](CaseMaker& m) {
      Chosen chosen = choose(m, dtype, size, over_chosen);
      OpCase test = make_case(
          "routing backward", OpKind::kRouteBackward,
          {m.poisoned(dtype, {size.rows, size.experts})},
          {m.random(kF32, size.narrow()), chosen.logits, chosen.choices(), chosen.weights()});
      test.call.over_chosen = over_chosen;
      test.largest_term = 4.0;
      return test;
    });
  }
  if (size.experts == 1) return;
  makers.push_back(
      [=](CaseMaker& m) { return grouping(m, size, choose(m, dtype, size, false).choices()); });
}

/// Sequences of `sequence` rows, or one of all, with labels that are ignored here and there, and of
/// the first sequence in its latter half.
void add_balance(std::vector<Maker>& makers, DType dtype, const ExpertCase& size) {
  for (bool forward : {true, false}) {
    makers.push_back([=](CaseMaker& m) {
      Chosen chosen = choose(m, dtype, size, false);
      int64_t sequence = size.rows % size.sequences == 0 ? size.rows / size.sequences : size.rows;
      HostTensor labels = m.ids(size.rows, -1, 3);
      for (int64_t row = sequence / 2; row < sequence; ++row) {
        std::fill_n(labels.bytes.data() + 4 * row, 4, std::byte{0xff});
      }
      Shape wide = {size.rows, size.experts};
      OpCase test = make_case(forward ? "balance" : "balance backward",
                              forward ? OpKind::kBalanceForward : OpKind::kBalanceBackward,
                              {forward ? m.poisoned(kF32, {size.rows}) : m.random(dtype, wide)},
                              {chosen.logits, chosen.order(), chosen.offsets(), labels});
      test.call.sequence = sequence;
      test.call.scale = forward ? 1.0f : 0.75f;
      return test;
    });
  }
}

void add_rows(std::vector<Maker>& makers, DType dtype, const ExpertCase& size) {
  Shape rows = {size.rows, size.in_columns};
  Shape places = {size.places(), size.in_columns};
  for (bool weighted : {false, true}) {
    makers.push_back([=](CaseMaker& m) {
      Chosen chosen = choose(m, dtype, size, true);
      return make_case(
          "gather", OpKind::kGatherRows, {m.poisoned(dtype, places)},
          {m.random(dtype, rows), chosen.order(), weighted ? chosen.weights() : HostTensor()});
    });
    makers.push_back([=](CaseMaker& m) {
      Chosen chosen = choose(m, dtype, size, true);
      // The one as a forward pass has it, the other as a backward pass does.
      OpCase test = make_case(
          "combine", OpKind::kCombineRows,
          {weighted ? m.poisoned(dtype, rows) : m.random(dtype, rows)},
          {m.random(dtype, places), chosen.places(), weighted ? chosen.weights() : HostTensor(),
           weighted ? m.random(dtype, rows) : HostTensor()});
      test.call.accumulate = !weighted;
      test.largest_term = 4.0;
      return test;
    });
  }
  for (bool biased : {false, true}) {
    makers.push_back([=](CaseMaker& m) {
      Chosen chosen = choose(m, dtype, size, true);
      HostTensor none;
      OpCase test = make_case(
          "combine backward", OpKind::kCombineBackward,
          {m.poisoned(dtype, places), m.poisoned(kF32, size.narrow())},
          {m.random(dtype, places), m.random(dtype, places), chosen.places(), chosen.weights(),
           biased ? m.random(dtype, {size.rows, size.out_columns}) : none,
           biased ? m.random(dtype, {size.experts, size.out_columns}) : none,
           biased ? chosen.choices() : none});
      test.largest_term = 4.0;
      return test;
    });
  }
}

void add_products(std::vector<Maker>& makers, DType dtype, const ExpertCase& size) {
  Shape in = {size.places(), size.in_columns};
  Shape out = {size.places(), size.out_columns};
  for (bool transpose : {false, true}) {
    Shape matrices = transpose ? Shape{size.experts, size.out_columns, size.in_columns}
                               : Shape{size.experts, size.in_columns, size.out_columns};
    makers.push_back([=](CaseMaker& m) {
      Chosen chosen = choose(m, dtype, size, true);
      HostTensor bias =
          transpose ? m.random(dtype, {size.experts, size.out_columns}) : HostTensor();
      OpCase test =
          make_case("grouped product", OpKind::kGroupedMatmul, {m.poisoned(dtype, out)},
                    {m.random(dtype, in), m.random(dtype, matrices), chosen.offsets(), bias});
      test.call.transpose_b = transpose;
      return test;
    });
  }
  makers.push_back([=](CaseMaker& m) {
    Chosen chosen = choose(m, dtype, size, true);
    return make_case("grouped weight gradient", OpKind::kGroupedMatmulWeight,
                     {m.random(kF32, {size.experts, size.in_columns, size.out_columns})},
                     {m.random(dtype, in), m.random(dtype, out), chosen.offsets()});
  });
  makers.push_back([=](CaseMaker& m) {
    Chosen chosen = choose(m, dtype, size, true);
    return make_case("grouped column sum", OpKind::kGroupedColumnSum,
                     {m.random(kF32, {size.experts, size.in_columns})},
                     {m.random(dtype, in), chosen.offsets()});
  });
}

}  // namespace

void add_experts(std::vector<Maker>& makers, DType dtype, bool large) {
  for (const ExpertCase& size : expert_cases(large)) {
    add_routing(makers, dtype, size);
    add_balance(makers, dtype, size);
    add_rows(makers, dtype, size);
    add_products(makers, dtype, size);
  }
}

}  // namespace stagecoach
