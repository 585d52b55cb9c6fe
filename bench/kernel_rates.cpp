// How fast are a device's operations? Times whole operations on a device string, as FLOP/s and as
// bytes of operands a second. README.md says how to read the rows.
// usage: kernel_rates [DEVICE] [--benchmark_...]   (default cuda:0)
#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backends/register_backends.h"
#include "core/dtype.h"
#include "hal/hal.h"

namespace stagecoach {
namespace {

/// The device under test and a stream of it.
struct Machine {
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Stream> stream;

  Device& device() { return *devices.front(); }
};

Result<Machine> open_machine(const std::string& text) {
  Machine machine;
  STAGECOACH_ASSIGN_OR_RETURN(machine.devices, built_in_backends().open_devices(text));
  STAGECOACH_ASSIGN_OR_RETURN(machine.stream, machine.device().create_stream({"bench"}));
  return machine;
}

/// Makes operands with random contents on the device; owns them.
class OperandMaker {
 public:
  explicit OperandMaker(Machine& machine) : machine_(machine) {}

  TensorView tensor(DType dtype, const Shape& shape) {
    TensorView view{{}, dtype, shape};
    Result<BufferHandle> buffer =
        require_buffer(machine_.device().allocate(view.size_bytes(), "bench"), machine_.device(),
                       view.size_bytes(), "bench");
    if (!buffer.is_ok()) {
      status_ = buffer.status();
      return view;
    }
    view.memory = (*buffer)->view();
    buffers_.push_back(std::move(*buffer));
    Status filled = fill(view);
    if (!filled.is_ok()) status_ = filled;
    return view;
  }
  const Status& status() const { return status_; }

 private:
  static constexpr ByteCount kPiece = ByteCount{4} << 20;

  static void write_random(DType dtype, std::byte* data) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    ByteCount size = dtype_size_bytes(dtype);
    for (ByteCount at = 0; at < kPiece; at += size) {
      float value = normal(engine);
      if (dtype == DType::kF32) {
        value = std::fabs(value);  // a second moment is not negative
        std::memcpy(data + at, &value, sizeof(value));
      } else if (dtype == DType::kBF16) {
        BFloat16 narrow = to_bfloat16(value);
        std::memcpy(data + at, &narrow, sizeof(narrow));
      } else if (dtype == DType::kF16) {
        Float16 narrow = to_float16(value);
        std::memcpy(data + at, &narrow, sizeof(narrow));
      } else {
        std::memset(data + at, 0, static_cast<size_t>(size));
      }
    }
  }

  /// The same random piece over and over.
  Status fill(const TensorView& view) {
    STAGECOACH_ASSIGN_OR_RETURN(BufferHandle piece,
                                require_buffer(machine_.device().allocate_pinned(kPiece, "bench"),
                                               machine_.device(), kPiece, "bench"));
    write_random(view.dtype, static_cast<std::byte*>(piece->host_data()));
    for (ByteCount at = 0; at < view.memory.size; at += kPiece) {
      ByteCount size = std::min(kPiece, view.memory.size - at);
      CopyRequest request;
      request.target = view.memory;
      request.target.offset += at;
      request.target.size = size;
      request.source = piece->view();
      request.source.size = size;
      request.label = "operand";
      STAGECOACH_RETURN_IF_FAILED(machine_.stream->copy(request));
    }
    return machine_.stream->synchronize();
  }

  Machine& machine_;
  std::vector<BufferHandle> buffers_;
  Status status_ = Status::ok();
};

using MakeCall = std::function<OpCall(OperandMaker&)>;

OpCall make_call(OpKind kind, std::initializer_list<TensorView> outputs,
                 std::initializer_list<TensorView> inputs) {
  OpCall call;
  call.kind = kind;
  call.label = "bench";
  std::copy(outputs.begin(), outputs.end(), call.outputs.begin());
  std::copy(inputs.begin(), inputs.end(), call.inputs.begin());
  return call;
}

double operand_bytes(const OpCall& call) {
  double bytes = 0.0;
  auto count = [&](const TensorView& view, double times) {
    if (!view.is_none()) bytes += times * static_cast<double>(view.size_bytes());
  };
  bool reads_outputs = call.accumulate || call.kind == OpKind::kAdamW;
  for (const TensorView& view : call.outputs) count(view, reads_outputs ? 2.0 : 1.0);
  for (const TensorView& view : call.inputs) count(view, 1.0);
  return bytes;
}

/// Seconds of one of `count` calls, queued together.
Result<double> time_calls(Machine& machine, const OpCall& call, int64_t count) {
  auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) {
    STAGECOACH_RETURN_IF_FAILED(machine.device().ops().run(*machine.stream, call));
  }
  STAGECOACH_RETURN_IF_ERROR(machine.stream->synchronize());
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / static_cast<double>(count);
}

void measure(benchmark::State& state, Machine& machine, const MakeCall& make) {
  OperandMaker maker(machine);
  OpCall call = make(maker);
  Status status = maker.status();
  if (status.is_ok()) status = validate_op(call, machine.device());
  if (!status.is_ok()) return state.SkipWithError(status.to_string().c_str());
  // Waiting costs up to 0.1 ms: batches are long enough not to show it.
  Result<double> first = time_calls(machine, call, 2);
  if (!first.is_ok()) return state.SkipWithError(first.status().to_string().c_str());
  int64_t count = std::clamp<int64_t>(static_cast<int64_t>(0.02 / *first), 1, 500);
  for (auto turn : state) {
    (void)turn;
    Result<double> seconds = time_calls(machine, call, count);
    if (!seconds.is_ok()) return state.SkipWithError(seconds.status().to_string().c_str());
    state.SetIterationTime(*seconds);
  }
  auto rate = [](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate,
                              benchmark::Counter::kIs1000);
  };
  state.counters["FLOP/s"] = rate(op_flop(call));
  state.counters["B/s"] = rate(operand_bytes(call));
}

void add_row(Machine& machine, const std::string& name, const MakeCall& make) {
  benchmark::RegisterBenchmark(
      name.c_str(), [&machine, make](benchmark::State& state) { measure(state, machine, make); })
      ->Unit(benchmark::kMicrosecond)
      ->UseManualTime()
      ->Iterations(5);
}

struct Heads {
  int64_t sequences, sequence, heads, kv_heads, dim;
  float drop_probability;
};

void add_attention(Machine& machine, DType dtype, const Heads& s) {
  std::string size = std::to_string(s.sequences) + "x" + std::to_string(s.sequence) + "/" +
                     std::to_string(s.heads) + "," + std::to_string(s.kv_heads) + "x" +
                     std::to_string(s.dim) + (s.drop_probability > 0.0f ? "/drop/" : "/") +
                     std::string(dtype_name(dtype));
  for (bool backward : {false, true}) {
    add_row(machine, (backward ? "attention_backward/" : "attention_forward/") + size,
            [=](OperandMaker& m) {
              int64_t rows = s.sequences * s.sequence;
              TensorView qkv = m.tensor(dtype, {rows, (s.heads + 2 * s.kv_heads) * s.dim});
              TensorView out = m.tensor(dtype, {rows, s.heads * s.dim});
              TensorView lse = m.tensor(DType::kF32, {rows, s.heads});
              OpCall call =
                  backward
                      ? make_call(OpKind::kAttentionBackward,
                                  {m.tensor(dtype, {rows, (s.heads + 2 * s.kv_heads) * s.dim})},
                                  {m.tensor(dtype, out.shape), qkv, out, lse})
                      : make_call(OpKind::kAttentionForward, {out, lse}, {qkv});
              call.sequence = s.sequence;
              call.heads = s.heads;
              call.kv_heads = s.kv_heads;
              call.head_dim = s.dim;
              call.scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
              call.drop_probability = s.drop_probability;
              return call;
            });
  }
}

/// out[m, n] in storage = a[m, k] b[k, n]; its input's gradient; its weight's, in fp32, added.
void add_matmul(Machine& machine, DType dtype, int64_t m, int64_t n, int64_t k) {
  std::string size = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + "/" +
                     std::string(dtype_name(dtype));
  add_row(machine, "matmul/" + size, [=](OperandMaker& maker) {
    return make_call(OpKind::kMatmul, {maker.tensor(dtype, {m, n})},
                     {maker.tensor(dtype, {m, k}), maker.tensor(dtype, {k, n})});
  });
  add_row(machine, "matmul_input_grad/" + size, [=](OperandMaker& maker) {
    OpCall call = make_call(OpKind::kMatmul, {maker.tensor(dtype, {m, k})},
                            {maker.tensor(dtype, {m, n}), maker.tensor(dtype, {k, n})});
    call.transpose_b = true;
    return call;
  });
  add_row(machine, "matmul_weight_grad/" + size, [=](OperandMaker& maker) {
    OpCall call = make_call(OpKind::kMatmul, {maker.tensor(DType::kF32, {k, n})},
                            {maker.tensor(dtype, {m, k}), maker.tensor(dtype, {m, n})});
    call.transpose_a = true;
    call.accumulate = true;
    return call;
  });
}

void add_norms(Machine& machine, DType dtype, int64_t rows, int64_t columns) {
  std::string size =
      std::to_string(rows) + "x" + std::to_string(columns) + "/" + std::string(dtype_name(dtype));
  Shape shape = {rows, columns};
  Shape row = {columns};
  Shape column = {rows};
  auto rms = [=](OperandMaker& m) { return m.tensor(DType::kF32, column); };
  add_row(machine, "rms_norm_forward/" + size, [=](OperandMaker& m) {
    return make_call(OpKind::kRmsNormForward, {m.tensor(dtype, shape), rms(m)},
                     {m.tensor(dtype, shape), m.tensor(dtype, row)});
  });
  add_row(machine, "rms_norm_backward_input/" + size, [=](OperandMaker& m) {
    return make_call(
        OpKind::kRmsNormBackwardInput, {m.tensor(dtype, shape)},
        {m.tensor(dtype, shape), m.tensor(dtype, shape), m.tensor(dtype, row), rms(m)});
  });
  add_row(machine, "rms_norm_backward_weight/" + size, [=](OperandMaker& m) {
    return make_call(OpKind::kRmsNormBackwardWeight, {m.tensor(DType::kF32, row)},
                     {m.tensor(dtype, shape), m.tensor(dtype, shape), rms(m)});
  });
  add_row(machine, "gated_silu_forward/" + size, [=](OperandMaker& m) {
    return make_call(OpKind::kGatedSiluForward, {m.tensor(dtype, shape)},
                     {m.tensor(dtype, shape), m.tensor(dtype, shape)});
  });
  add_row(machine, "add/" + size, [=](OperandMaker& m) {
    return make_call(OpKind::kAdd, {m.tensor(dtype, shape)},
                     {m.tensor(dtype, shape), m.tensor(dtype, shape)});
  });
}

void add_rows(Machine& machine) {
  constexpr DType kBF16 = DType::kBF16;
  for (const Heads& heads : {Heads{2, 4096, 16, 16, 128, 0.0f}, Heads{2, 4096, 32, 8, 128, 0.0f},
                             Heads{2, 4096, 32, 8, 64, 0.0f}, Heads{2, 4096, 16, 8, 96, 0.0f},
                             Heads{2, 4096, 16, 8, 80, 0.0f}, Heads{2, 2048, 8, 8, 256, 0.0f},
                             Heads{2, 4096, 16, 16, 128, 0.1f}}) {
    add_attention(machine, kBF16, heads);
  }
  add_attention(machine, DType::kF16, {2, 4096, 16, 16, 128, 0.0f});
  add_matmul(machine, kBF16, 8192, 8192, 8192);
  add_matmul(machine, kBF16, 8192, 6144, 2048);
  add_matmul(machine, kBF16, 8192, 2304, 768);
  add_matmul(machine, DType::kF32, 2048, 2048, 2048);
  add_norms(machine, kBF16, 8192, 2048);
  add_row(machine, "adamw/67108864/bf16", [](OperandMaker& m) {
    Shape shape = {int64_t{64} << 20};
    TensorView parameters = m.tensor(DType::kF32, shape);
    OpCall call = make_call(
        OpKind::kAdamW, {parameters, m.tensor(DType::kF32, shape), m.tensor(DType::kF32, shape)},
        {m.tensor(DType::kBF16, shape)});
    call.adamw = AdamWNumbers{1e-3f, 0.9f, 0.95f, 0.1f, 7};
    call.epsilon = 1e-8f;
    return call;
  });
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  std::string device = "cuda:0";
  if (argc > 1 && argv[1][0] != '-') {
    device = argv[1];
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  auto machine = stagecoach::open_machine(device);
  if (!machine.is_ok()) {
    std::fprintf(stderr, "%s\n", machine.status().to_string().c_str());
    return 1;
  }
  stagecoach::add_rows(*machine);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
