#include "backends/cpu/cpu_matmul.h"

#include <array>
#include <atomic>
#include <dnnl.hpp>
#include <fmt/format.h>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "backends/cpu/cpu_scratch.h"
#include "backends/cpu/cpu_vector.h"
#include "core/check.h"
#include "core/log.h"

// oneDNN is built on libgomp, whose header needs the compiler's OpenMP mode.
extern "C" void omp_set_num_threads(int count);

namespace stagecoach {

namespace {

/// What a primitive is made for. Strides are in elements.
struct ProductKey {
  int64_t m, n, k, a_stride, b_stride, c_stride;
  bool bf16, a_transposed, b_transposed, add_to;
  friend bool operator==(const ProductKey&, const ProductKey&) = default;
};

struct ProductKeyHash {
  size_t operator()(const ProductKey& key) const {
    uint64_t hash = 0;
    for (int64_t part : {key.m, key.n, key.k, key.a_stride, key.b_stride, key.c_stride,
                         static_cast<int64_t>(key.bf16 | key.a_transposed << 1 |
                                              key.b_transposed << 2 | key.add_to << 3)}) {
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
  }
};

/// A primitive with memory objects whose addresses are set at each use.
struct Product {
  dnnl::primitive primitive;
  dnnl::memory a, b, c, scratchpad;
  ByteCount scratchpad_size = 0;
};

/// Held while oneDNN makes something: its process-wide cache comes into being at first use, and
/// that it does so safely is not to be seen from outside. Making is rare; running takes no lock.
std::mutex& making_mutex() {
  static std::mutex mutex;
  return mutex;
}

dnnl::engine make_engine() {
  std::lock_guard lock(making_mutex());
  return dnnl::engine(dnnl::engine::kind::cpu, 0);
}

/// One thread's side of oneDNN. Threads share nothing but what oneDNN keeps for the process: the
/// generated code of equal primitives.
struct ThreadState {
  dnnl::engine engine = make_engine();
  dnnl::stream stream{engine};
  std::unordered_map<ProductKey, Product, ProductKeyHash> products;

  ThreadState() {
    // Results must not depend on a number of threads, and the task pool already uses the cores: a
    // call runs on its own thread alone. The setting is the calling thread's own in OpenMP.
    omp_set_num_threads(1);
  }
  ~ThreadState() { drop_products(); }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  void drop_products() {
    std::lock_guard lock(making_mutex());
    products.clear();
  }
};

ThreadState& thread_state() {
  static thread_local ThreadState state;
  return state;
}

dnnl::memory::desc describe(int64_t rows, int64_t columns, dnnl::memory::data_type type,
                            int64_t stride, bool transposed) {
  dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return dnnl::memory::desc({rows, columns}, type, strides);
}

Product make_product(const dnnl::engine& engine, const ProductKey& key) {
  std::lock_guard lock(making_mutex());
  using Type = dnnl::memory::data_type;
  Type type = key.bf16 ? Type::bf16 : Type::f32;
  dnnl::memory::desc a = describe(key.m, key.k, type, key.a_stride, key.a_transposed);
  dnnl::memory::desc b = describe(key.k, key.n, type, key.b_stride, key.b_transposed);
  dnnl::memory::desc c = describe(key.m, key.n, Type::f32, key.c_stride, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  // fp32 means fp32, whatever DNNL_DEFAULT_FPMATH_MODE says.
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  if (key.add_to) {
    dnnl::post_ops add;
    add.append_sum(1.0f);
    attributes.set_post_ops(add);
  }
  dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine);
  dnnl::memory::desc scratchpad = description.scratchpad_desc();
  return Product{dnnl::matmul(description),
                 dnnl::memory(a, engine, DNNL_MEMORY_NONE),
                 dnnl::memory(b, engine, DNNL_MEMORY_NONE),
                 dnnl::memory(c, engine, DNNL_MEMORY_NONE),
                 dnnl::memory(scratchpad, engine, DNNL_MEMORY_NONE),
                 static_cast<ByteCount>(scratchpad.get_size())};
}

/// Whether oneDNN multiplies bf16 faster than fp32 here. With AMX it does by far; with AVX-512's
/// own bf16 instructions it is half as fast, and elsewhere it emulates them.
bool bf16_is_fast() {
  static const bool fast = [] {
    auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
    bool has_amx = (isa & amx) == amx;
    if (!has_amx) log_info("no AMX in this processor: bf16 matmuls convert to fp32");
    return has_amx;
  }();
  return fast;
}

/// The thread's product for `key`, made at first use; null when oneDNN has none for it.
Product* find_product(const ProductKey& key) {
  constexpr size_t kMostProducts = 1024;
  ThreadState& state = thread_state();
  auto found = state.products.find(key);
  if (found != state.products.end()) return &found->second;
  // Shapes of a run are few; a program that keeps inventing them starts over.
  if (state.products.size() >= kMostProducts) state.drop_products();
  try {
    return &state.products.emplace(key, make_product(state.engine, key)).first->second;
  } catch (const dnnl::error& error) {
    static std::atomic<bool> told = false;
    if (!told.exchange(true)) {
      log_info(fmt::format("oneDNN refused a matmul of {} x {} x {} ({}): {}", key.m, key.n, key.k,
                           key.bf16 ? "bf16, converting to fp32" : "fp32", error.what()));
    }
    return nullptr;
  }
}

void execute(Product& product, const void* a, const void* b, float* c) {
  ScratchFrame frame;
  ThreadState& state = thread_state();
  product.a.set_data_handle(const_cast<void*>(a));
  product.b.set_data_handle(const_cast<void*>(b));
  product.c.set_data_handle(c);
  product.scratchpad.set_data_handle(frame.bytes(product.scratchpad_size));
  // The C interface takes the arguments without building a map for each call.
  std::array<dnnl_exec_arg_t, 4> arguments = {{{DNNL_ARG_SRC, product.a.get()},
                                               {DNNL_ARG_WEIGHTS, product.b.get()},
                                               {DNNL_ARG_DST, product.c.get()},
                                               {DNNL_ARG_SCRATCHPAD, product.scratchpad.get()}}};
  dnnl_status_t status =
      dnnl_primitive_execute(product.primitive.get(), state.stream.get(),
                             static_cast<int>(arguments.size()), arguments.data());
  STAGECOACH_CHECK(status == dnnl_success);
}

/// An fp32 copy of the [rows, columns] part of `matrix`, in its own orientation.
Matrix convert_matrix(const Matrix& matrix, int64_t rows, int64_t columns, ScratchFrame& frame) {
  if (matrix.dtype == DType::kF32) return matrix;
  int64_t lines = matrix.transposed ? columns : rows;
  int64_t length = matrix.transposed ? rows : columns;
  float* copy = frame.floats(lines * length);
  const std::byte* source = static_cast<const std::byte*>(matrix.data);
  for (int64_t line = 0; line < lines; ++line) {
    ByteCount offset = line * matrix.stride * dtype_size_bytes(matrix.dtype);
    vec::load(matrix.dtype, source + offset, length, copy + line * length);
  }
  return Matrix{copy, DType::kF32, length, matrix.transposed};
}

}  // namespace

Matrix Matrix::at(int64_t row, int64_t column) const {
  int64_t offset = transposed ? column * stride + row : row * stride + column;
  Matrix part = *this;
  part.data = static_cast<const std::byte*>(data) + offset * dtype_size_bytes(dtype);
  return part;
}

void block_product(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, float* c,
                   int64_t c_stride, bool add_to) {
  ProductKey key{m, n, k, a.stride, b.stride, c_stride, true, a.transposed, b.transposed, add_to};
  if (a.dtype == DType::kBF16 && b.dtype == DType::kBF16 && bf16_is_fast()) {
    if (Product* product = find_product(key)) return execute(*product, a.data, b.data, c);
  }
  ScratchFrame frame;
  Matrix float_a = convert_matrix(a, m, k, frame);
  Matrix float_b = convert_matrix(b, k, n, frame);
  key.bf16 = false;
  key.a_stride = float_a.stride;
  key.b_stride = float_b.stride;
  Product* product = find_product(key);
  // fp32 products of any shape and stride are a basic part of oneDNN.
  STAGECOACH_CHECK(product != nullptr);
  execute(*product, float_a.data, float_b.data, c);
}

}  // namespace stagecoach
