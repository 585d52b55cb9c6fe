// What the vendor's libraries gain: rates of products, attention and linear cross-entropy with
// them, bit-exact with them, and by own kernels alone, timed on the card.
// usage: library_rates [DEVICE] [benchmark options]   (default: cuda:0)
#include <benchmark/benchmark.h>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "backends/register_backends.h"
#include "hal/hal.h"

namespace stagecoach {
namespace {

void check(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "library_rates: %s\n", status.to_string().c_str());
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  check(result.is_ok() ? Status::ok() : result.status());
  return std::move(result).value();
}

/// One way of computing: a device, opened, and a stream on it.
struct Way {
  std::string name;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> start, end;

  Device& device() { return *devices.front(); }
};

std::unique_ptr<Way> open_way(const std::string& name, const std::string& spec, bool exact) {
  auto way = std::make_unique<Way>();
  way->name = name;
  way->devices = must(built_in_backends().open_devices(spec, {.is_deterministic = exact}));
  way->stream = must(way->device().create_stream({"compute"}));
  way->start = must(way->device().create_event({true}));
  way->end = must(way->device().create_event({true}));
  return way;
}

/// A tensor to make.
struct Operand {
  DType dtype;
  Shape shape;
};

/// Memory for operands, given back after each benchmark.
class Operands {
 public:
  explicit Operands(Way& way) : way_(way) {}
  TensorView make(const Operand& operand) {
    TensorView view;
    view.dtype = operand.dtype;
    view.shape = operand.shape;
    if (operand.shape.rank == 0) return {};
    ByteCount size = view.size_bytes();
    Device& device = way_.device();
    BufferHandle buffer =
        must(require_buffer(device.allocate(size, "operand"), device, size, "operand"));
    view.memory = buffer->view();
    // About 1e-2 in every type; small enough as an id.
    uint32_t pattern = operand.dtype == DType::kI32    ? 7
                       : operand.dtype == DType::kF32  ? 0x3c23d70au
                       : operand.dtype == DType::kBF16 ? 0x3c23u
                                                       : 0x211eu;
    int width = static_cast<int>(std::min<ByteCount>(dtype_size_bytes(operand.dtype), 4));
    check(way_.stream->fill({view.memory, pattern, width, "operand"}).status());
    buffers_.push_back(std::move(buffer));
    return view;
  }

 private:
  Way& way_;
  std::vector<BufferHandle> buffers_;
};

using MakeCall = std::function<OpCall(Operands&)>;

void run(benchmark::State& state, Way& way, const MakeCall& make) {
  Operands operands(way);
  OpCall call = make(operands);
  call.label = "bench";
  constexpr int kWarmUps = 2;
  for (int i = 0; i < kWarmUps; ++i) check(way.device().ops().run(*way.stream, call).status());
  check(way.stream->synchronize());
  constexpr int kBatch = 5;
  while (state.KeepRunningBatch(kBatch)) {
    check(way.stream->record(*way.start).status());
    for (int i = 0; i < kBatch; ++i) check(way.device().ops().run(*way.stream, call).status());
    check(way.stream->record(*way.end).status());
    check(way.stream->synchronize());
    int64_t duration_ns = must(way.end->timestamp_ns()) - must(way.start->timestamp_ns());
    state.SetIterationTime(static_cast<double>(duration_ns) * 1e-9);
  }
  state.counters["TFLOP/s"] = benchmark::Counter(
      op_flop(call) * 1e-12 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

OpCall call_of(OpKind kind, std::initializer_list<TensorView> outputs,
               std::initializer_list<TensorView> inputs) {
  OpCall call;
  call.kind = kind;
  std::copy(outputs.begin(), outputs.end(), call.outputs.begin());
  std::copy(inputs.begin(), inputs.end(), call.inputs.begin());
  return call;
}

MakeCall product(DType dtype, DType out, int64_t m, int64_t n, int64_t k, bool weight_gradient) {
  return [=](Operands& operands) {
    Shape a = weight_gradient ? Shape{k, m} : Shape{m, k};
    Shape b = weight_gradient ? Shape{k, n} : Shape{n, k};
    OpCall call = call_of(OpKind::kMatmul, {operands.make({out, {m, n}})},
                          {operands.make({dtype, a}), operands.make({dtype, b})});
    call.transpose_a = weight_gradient;
    call.transpose_b = !weight_gradient;
    call.accumulate = weight_gradient;
    return call;
  };
}

MakeCall attention(bool backward, int64_t sequences, int64_t sequence, int64_t heads,
                   int64_t kv_heads, int64_t dim) {
  return [=](Operands& operands) {
    int64_t rows = sequences * sequence;
    constexpr DType kStorage = DType::kBF16;
    TensorView qkv = operands.make({kStorage, {rows, (heads + 2 * kv_heads) * dim}});
    TensorView out = operands.make({kStorage, {rows, heads * dim}});
    TensorView lse = operands.make({DType::kF32, {rows, heads}});
    OpCall call = call_of(OpKind::kAttentionForward, {out, lse}, {qkv});
    if (backward) {
      TensorView grad = operands.make({kStorage, qkv.shape});
      call = call_of(OpKind::kAttentionBackward, {grad},
                     {operands.make({kStorage, out.shape}), qkv, out, lse});
    }
    call.sequence = sequence;
    call.heads = heads;
    call.kv_heads = kv_heads;
    call.head_dim = dim;
    call.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    return call;
  };
}

MakeCall cross_entropy(OpKind kind, int64_t rows, int64_t columns, int64_t vocabulary) {
  return [=](Operands& operands) {
    TensorView hidden = operands.make({DType::kBF16, {rows, columns}});
    TensorView weight = operands.make({DType::kBF16, {vocabulary, columns}});
    TensorView labels = operands.make({DType::kI32, {rows}});
    TensorView lse = operands.make({DType::kF32, {rows}});
    if (kind == OpKind::kLinearCrossEntropyForward) {
      return call_of(kind, {operands.make({DType::kF32, {rows}}), lse}, {hidden, weight, labels});
    }
    bool for_weight = kind == OpKind::kLinearCrossEntropyBackwardWeight;
    TensorView grad = operands.make(for_weight ? Operand{DType::kF32, weight.shape}
                                               : Operand{DType::kBF16, hidden.shape});
    return call_of(kind, {grad}, {hidden, weight, labels, lse});
  };
}

std::vector<std::pair<std::string, MakeCall>> measured_ops() {
  constexpr DType kBF16 = DType::kBF16, kF16 = DType::kF16, kF32 = DType::kF32;
  std::vector<std::pair<std::string, MakeCall>> ops = {
      {"bf16 4096x4096x4096", product(kBF16, kBF16, 4096, 4096, 4096, false)},
      {"fp16 4096x4096x4096", product(kF16, kF16, 4096, 4096, 4096, false)},
      {"fp32 4096x4096x4096", product(kF32, kF32, 4096, 4096, 4096, false)},
      {"bf16 8192x12288x2048", product(kBF16, kBF16, 8192, 12288, 2048, false)},
      {"bf16 gradient 12288x2048x8192", product(kBF16, kF32, 12288, 2048, 8192, true)},
      {"attention 2x4096 16 heads of 128", attention(false, 2, 4096, 16, 16, 128)},
      {"attention backward 2x4096 16 heads of 128", attention(true, 2, 4096, 16, 16, 128)},
      {"attention backward 2x4096 16 over 8 heads of 128", attention(true, 2, 4096, 16, 8, 128)},
      {"attention 16x1024 12 heads of 64", attention(false, 16, 1024, 12, 12, 64)},
      {"attention backward 16x1024 12 heads of 64", attention(true, 16, 1024, 12, 12, 64)}};
  for (auto [columns, vocabulary] : {std::pair(768, 50257), std::pair(2048, 151936)}) {
    std::string size = std::to_string(columns) + "x" + std::to_string(vocabulary);
    ops.emplace_back("cross entropy 4096x" + size,
                     cross_entropy(OpKind::kLinearCrossEntropyForward, 4096, columns, vocabulary));
    ops.emplace_back(
        "cross entropy hidden gradient 4096x" + size,
        cross_entropy(OpKind::kLinearCrossEntropyBackwardInput, 4096, columns, vocabulary));
    ops.emplace_back(
        "cross entropy weight gradient 4096x" + size,
        cross_entropy(OpKind::kLinearCrossEntropyBackwardWeight, 4096, columns, vocabulary));
  }
  return ops;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  using namespace stagecoach;
  std::string device = "cuda:0";
  if (argc > 1 && argv[1][0] != '-') {
    device = argv[1];
    ++argv;
    --argc;
  }
  benchmark::Initialize(&argc, argv);
  std::vector<std::unique_ptr<Way>> ways;
  ways.push_back(open_way("libraries", device, false));
  ways.push_back(open_way("bit-exact", device, true));
  ways.push_back(open_way("own kernels", device + "[libraries=off]", false));
  for (auto& [name, make] : measured_ops()) {
    for (auto& way : ways) {
      benchmark::RegisterBenchmark(
          (name + "/" + way->name).c_str(),
          [&way, make](benchmark::State& state) { run(state, *way, make); })
          ->UseManualTime()
          ->Iterations(10)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
