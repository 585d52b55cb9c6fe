// How fast is each operation of the CPU backend? README.md says how to read the rows.
#include <benchmark/benchmark.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/cpu_ops.h"
#include "hal/device.h"
#include "hal/ops.h"

namespace stagecoach {
namespace {

/// Owns a device, its tensors and the threads; makes calls with plausible contents.
class OpBench {
 public:
  OpBench() : pool_(TaskPool::create(usable_thread_count())) {
    std::unique_ptr<Backend> backend = make_cpu_backend();
    DeviceSpec spec;
    spec.backend = "cpu";
    spec.which = "1";
    spec.text = "cpu:1";
    auto devices = backend->open(spec);
    STAGECOACH_CHECK(devices.is_ok());
    device_ = std::move(devices->front());
  }

  TensorView tensor(DType dtype, const Shape& shape) {
    TensorView view{{}, dtype, shape};
    Allocation allocation = device_->allocate(view.size_bytes(), "bench");
    STAGECOACH_CHECK(allocation.outcome == AllocationOutcome::kOk);
    view.memory = allocation.buffer->view();
    buffers_.push_back(std::move(allocation.buffer));
    fill(view);
    return view;
  }

  /// Runs `call` until the library has seen enough, and reports FLOP/s.
  void measure(benchmark::State& state, const OpCall& call) {
    Status status = validate_op(call, *device_);
    if (!status.is_ok()) return state.SkipWithError(status.to_string().c_str());
    for (auto turn : state) {
      (void)turn;
      status = run_cpu_op(call, *pool_);
      if (!status.is_ok()) return state.SkipWithError(status.to_string().c_str());
    }
    state.counters["FLOP/s"] = benchmark::Counter(
        op_flop(call), benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
  }

 private:
  void fill(const TensorView& view) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    auto* data = reinterpret_cast<std::byte*>(view.memory.buffer->device_address());
    for (int64_t i = 0; i < view.element_count(); ++i) {
      if (view.dtype == DType::kF32) reinterpret_cast<float*>(data)[i] = normal(engine);
      if (view.dtype == DType::kI32) {
        reinterpret_cast<int32_t*>(data)[i] = static_cast<int32_t>(engine() % 250);
      }
      if (view.dtype == DType::kBF16) {
        reinterpret_cast<BFloat16*>(data)[i] = to_bfloat16(normal(engine));
      }
      if (view.dtype == DType::kF16) {
        reinterpret_cast<Float16*>(data)[i] = to_float16(normal(engine));
      }
    }
  }

  std::unique_ptr<TaskPool> pool_;
  std::unique_ptr<Device> device_;
  std::vector<BufferHandle> buffers_;
};

/// Sizes of a model as far as operations see them.
struct Sizes {
  int64_t rows, columns, heads, sequence, vocabulary;
  DType dtype;
};

OpCall make_call(OpKind kind, std::initializer_list<TensorView> outputs,
                 std::initializer_list<TensorView> inputs) {
  OpCall call;
  call.kind = kind;
  call.label = "bench";
  std::copy(outputs.begin(), outputs.end(), call.outputs.begin());
  std::copy(inputs.begin(), inputs.end(), call.inputs.begin());
  return call;
}

/// Tensors by the letters of ops.h.
class Maker {
 public:
  Maker(OpBench& bench, const Sizes& sizes) : bench_(bench), s_(sizes) {}

  TensorView storage(const Shape& shape) { return bench_.tensor(s_.dtype, shape); }
  TensorView f32(const Shape& shape) { return bench_.tensor(DType::kF32, shape); }
  TensorView ids() { return bench_.tensor(DType::kI32, {s_.rows}); }
  TensorView f64() { return bench_.tensor(DType::kF64, {1}); }
  TensorView rows(int64_t factor = 1) { return storage({s_.rows, factor * s_.columns}); }

  /// out[rows, n] = in[rows, k] * weight[k, n] + bias; or one of its two gradients.
  OpCall matmul(int64_t n, int64_t k) {
    return make_call(OpKind::kMatmul, {storage({s_.rows, n})},
                     {storage({s_.rows, k}), storage({k, n}), storage({n})});
  }
  OpCall matmul_input_grad(int64_t n, int64_t k) {
    OpCall call = make_call(OpKind::kMatmul, {storage({s_.rows, k})},
                            {storage({s_.rows, n}), storage({k, n})});
    call.transpose_b = true;
    return call;
  }
  OpCall matmul_weight_grad(int64_t n, int64_t k) {
    OpCall call =
        make_call(OpKind::kMatmul, {f32({k, n})}, {storage({s_.rows, k}), storage({s_.rows, n})});
    call.transpose_a = true;
    call.accumulate = true;
    return call;
  }
  OpCall attention(bool backward, float drop_probability) {
    TensorView out = rows();
    TensorView lse = f32({s_.rows, s_.heads});
    OpCall call =
        backward ? make_call(OpKind::kAttentionBackward, {rows(3)}, {rows(), rows(3), out, lse})
                 : make_call(OpKind::kAttentionForward, {out, lse}, {rows(3)});
    call.sequence = s_.sequence;
    call.heads = call.kv_heads = s_.heads;
    call.head_dim = s_.columns / s_.heads;
    call.scale = 0.1f;
    call.drop_probability = drop_probability;
    return call;
  }
  OpCall cross_entropy(OpKind kind) {
    TensorView hidden = rows();
    TensorView weight = storage({s_.vocabulary, s_.columns});
    TensorView lse = f32({s_.rows});
    if (kind == OpKind::kLinearCrossEntropyForward) {
      return make_call(kind, {f32({s_.rows}), lse}, {hidden, weight, ids()});
    }
    bool input = kind == OpKind::kLinearCrossEntropyBackwardInput;
    TensorView grad = input ? rows() : f32({s_.vocabulary, s_.columns});
    OpCall call = make_call(kind, {grad}, {hidden, weight, ids(), lse});
    // Keeps gradients that are added up over many turns small.
    call.scale = 1e-6f;
    return call;
  }

 private:
  OpBench& bench_;
  Sizes s_;
};

using MakeCall = OpCall (*)(Maker& maker, const Sizes& sizes);

struct Row {
  const char* name;
  MakeCall make;
};

/// The operations of a GPT-2 layer, embedding and head, forward and backward.
const Row kGpt2Rows[] = {
    {"matmul_qkv", [](Maker& m, const Sizes& s) { return m.matmul(3 * s.columns, s.columns); }},
    {"matmul_projection", [](Maker& m, const Sizes& s) { return m.matmul(s.columns, s.columns); }},
    {"matmul_up", [](Maker& m, const Sizes& s) { return m.matmul(4 * s.columns, s.columns); }},
    {"matmul_down", [](Maker& m, const Sizes& s) { return m.matmul(s.columns, 4 * s.columns); }},
    {"matmul_up_input_grad",
     [](Maker& m, const Sizes& s) { return m.matmul_input_grad(4 * s.columns, s.columns); }},
    {"matmul_up_weight_grad",
     [](Maker& m, const Sizes& s) { return m.matmul_weight_grad(4 * s.columns, s.columns); }},
    {"matmul_down_weight_grad",
     [](Maker& m, const Sizes& s) { return m.matmul_weight_grad(s.columns, 4 * s.columns); }},
    {"attention_forward", [](Maker& m, const Sizes&) { return m.attention(false, 0.0f); }},
    {"attention_backward", [](Maker& m, const Sizes&) { return m.attention(true, 0.0f); }},
    {"attention_forward_dropout", [](Maker& m, const Sizes&) { return m.attention(false, 0.1f); }},
    {"attention_backward_dropout", [](Maker& m, const Sizes&) { return m.attention(true, 0.1f); }},
    {"layer_norm_forward",
     [](Maker& m, const Sizes& s) {
       return make_call(OpKind::kLayerNormForward, {m.rows(), m.f32({s.rows}), m.f32({s.rows})},
                        {m.rows(), m.storage({s.columns}), m.storage({s.columns})});
     }},
    {"layer_norm_backward_input",
     [](Maker& m, const Sizes& s) {
       return make_call(
           OpKind::kLayerNormBackwardInput, {m.rows()},
           {m.rows(), m.rows(), m.storage({s.columns}), m.f32({s.rows}), m.f32({s.rows})});
     }},
    {"layer_norm_backward_weight",
     [](Maker& m, const Sizes& s) {
       return make_call(OpKind::kLayerNormBackwardWeight, {m.f32({s.columns}), m.f32({s.columns})},
                        {m.rows(), m.rows(), m.f32({s.rows}), m.f32({s.rows})});
     }},
    {"column_sum",
     [](Maker& m, const Sizes& s) {
       return make_call(OpKind::kColumnSum, {m.f32({4 * s.columns})}, {m.rows(4)});
     }},
    {"gelu_forward",
     [](Maker& m, const Sizes&) {
       return make_call(OpKind::kGeluForward, {m.rows(4)}, {m.rows(4)});
     }},
    {"gelu_backward",
     [](Maker& m, const Sizes&) {
       return make_call(OpKind::kGeluBackward, {m.rows(4)}, {m.rows(4), m.rows(4)});
     }},
    {"add",
     [](Maker& m, const Sizes&) {
       return make_call(OpKind::kAdd, {m.rows()}, {m.rows(), m.rows()});
     }},
    {"dropout",
     [](Maker& m, const Sizes&) {
       OpCall call = make_call(OpKind::kDropout, {m.rows()}, {m.rows(), m.rows()});
       call.drop_probability = 0.1f;
       return call;
     }},
    {"embedding_forward",
     [](Maker& m, const Sizes& s) {
       OpCall call = make_call(
           OpKind::kEmbeddingForward, {m.rows()},
           {m.ids(), m.storage({s.vocabulary, s.columns}), m.storage({s.sequence, s.columns})});
       call.sequence = s.sequence;
       return call;
     }},
    {"embedding_backward",
     [](Maker& m, const Sizes& s) {
       OpCall call = make_call(OpKind::kEmbeddingBackward,
                               {m.f32({s.vocabulary, s.columns}), m.f32({s.sequence, s.columns})},
                               {m.rows(), m.ids()});
       call.sequence = s.sequence;
       return call;
     }},
    {"cross_entropy_forward",
     [](Maker& m, const Sizes&) { return m.cross_entropy(OpKind::kLinearCrossEntropyForward); }},
    {"cross_entropy_backward_input",
     [](Maker& m, const Sizes&) {
       return m.cross_entropy(OpKind::kLinearCrossEntropyBackwardInput);
     }},
    {"cross_entropy_backward_weight",
     [](Maker& m, const Sizes&) {
       return m.cross_entropy(OpKind::kLinearCrossEntropyBackwardWeight);
     }},
    {"accumulate",
     [](Maker& m, const Sizes& s) {
       Shape shape = {12 * s.columns, s.columns};
       return make_call(OpKind::kAccumulate, {m.f32(shape)}, {m.storage(shape)});
     }},
    {"convert",
     [](Maker& m, const Sizes& s) {
       Shape shape = {12 * s.columns, s.columns};
       return make_call(OpKind::kConvert, {m.storage(shape)}, {m.f32(shape)});
     }},
    {"sum_of_squares",
     [](Maker& m, const Sizes& s) {
       Shape shape = {12 * s.columns, s.columns};
       return make_call(OpKind::kSumOfSquares, {m.f64()}, {m.storage(shape)});
     }},
};

const Row kScalingRows[] = {
    {"matmul", [](Maker& m, const Sizes& s) { return m.matmul(4 * s.columns, s.columns); }},
    {"matmul_weight_grad",
     [](Maker& m, const Sizes& s) { return m.matmul_weight_grad(4 * s.columns, s.columns); }},
    {"attention_forward", [](Maker& m, const Sizes&) { return m.attention(false, 0.0f); }},
    {"attention_backward", [](Maker& m, const Sizes&) { return m.attention(true, 0.0f); }},
    {"cross_entropy_forward",
     [](Maker& m, const Sizes&) { return m.cross_entropy(OpKind::kLinearCrossEntropyForward); }},
    {"cross_entropy_backward_weight",
     [](Maker& m, const Sizes&) {
       return m.cross_entropy(OpKind::kLinearCrossEntropyBackwardWeight);
     }},
};

void add_row(const std::string& group, const Row& row, const Sizes& sizes) {
  std::string name = group + "/" + row.name + "/" + std::string(dtype_name(sizes.dtype));
  MakeCall make = row.make;
  benchmark::RegisterBenchmark(name.c_str(),
                               [make, sizes](benchmark::State& state) {
                                 OpBench bench;
                                 Maker maker(bench, sizes);
                                 bench.measure(state, make(maker, sizes));
                               })
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
}

void add_rows() {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Row& row : kGpt2Rows) add_row("gpt2", row, {2048, 192, 6, 128, 257, dtype});
  }
  for (const Sizes& sizes :
       {Sizes{512, 128, 4, 64, 257, DType::kF32}, Sizes{2048, 384, 6, 256, 4099, DType::kF32},
        Sizes{4096, 768, 12, 512, 16384, DType::kF32},
        Sizes{4096, 768, 12, 512, 16384, DType::kBF16}}) {
    std::string group = std::to_string(sizes.rows) + "x" + std::to_string(sizes.columns);
    for (const Row& row : kScalingRows) add_row(group, row, sizes);
  }
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  stagecoach::add_rows();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
