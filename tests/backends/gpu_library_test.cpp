// A device with a math library: which ops it computes, on what, and what happens when it fails.
#include "backends/gpu/gpu_library.h"

#include <cstring>

#include "hal/backend_registry.h"
#include "tests/backends/allocation_count.h"
#include "tests/backends/gpu_rig.h"

namespace stagecoach {
namespace {

/// What the test's library is told to do and what it saw.
struct LibraryScript {
  bool serves = true;
  Status find_failure;
  Status run_failure;
  ByteCount scratch_bytes = 3000;

  GpuLibraryRequest request;
  int opened = 0;
  int products = 0;
  int attentions = 0;
  ByteCount least_scratch = 0;
};

/// Computes fp32 products on the host, in the stream's order.
class ScriptedLibrary final : public GpuLibrary {
 public:
  ScriptedLibrary(LibraryScript& script, FakeGpuDriver& driver) : script_(script), api_(driver) {}
  ~ScriptedLibrary() override { --script_.opened; }

  Result<std::optional<ByteCount>> find_product(const GpuProductShape&) override { return find(); }
  Result<std::optional<ByteCount>> find_attention(const GpuAttentionShape&) override {
    return find();
  }
  Status run_product(const GpuProductShape& shape, const GpuProductOperands& operands,
                     const GpuLibraryPlace& place) override {
    STAGECOACH_RETURN_IF_ERROR(start(place));
    ++script_.products;
    auto* out = pointer(operands.out);
    for (int64_t row = 0; row < shape.m; ++row) {
      for (int64_t column = 0; column < shape.n; ++column) {
        float sum = 0.0f;
        for (int64_t k = 0; k < shape.k; ++k) {
          sum += pointer(operands.a)[row * shape.a_stride + k] *
                 pointer(operands.b)[k * shape.b_stride + column];
        }
        out[row * shape.out_stride + column] = sum;
      }
    }
    return Status::ok();
  }
  Status run_attention(const GpuAttentionShape&, const GpuAttentionOperands& operands,
                       const GpuLibraryPlace& place) override {
    STAGECOACH_RETURN_IF_ERROR(start(place));
    ++script_.attentions;
    pointer(operands.out)[0] = 42.0f;
    return Status::ok();
  }
  std::string provider(OpKind kind) const override {
    return kind == OpKind::kMatmul ? "scripted library" : "";
  }

 private:
  static float* pointer(uint64_t address) {
    return reinterpret_cast<float*>(static_cast<uintptr_t>(address));
  }
  Result<std::optional<ByteCount>> find() {
    if (!script_.find_failure.is_ok()) return script_.find_failure;
    return script_.serves ? std::optional(script_.scratch_bytes) : std::nullopt;
  }
  Status start(const GpuLibraryPlace& place) {
    // The context must be current for this too.
    while (api_.query_stream(place.stream) == FakeApi::kNotReady) {
    }
    EXPECT_EQ(place.scratch % 256, 0u);
    script_.least_scratch = place.scratch_bytes;
    std::memset(pointer(place.scratch), 0xff, static_cast<size_t>(place.scratch_bytes));
    return script_.run_failure;
  }

  LibraryScript& script_;
  FakeApi api_;
};

class GpuLibraryTest : public GpuRig {
 protected:
  void SetUp() override {
    GpuRig::SetUp();
    build({}, [this](const GpuLibraryRequest& request) {
      script_.request = request;
      ++script_.opened;
      return std::make_unique<ScriptedLibrary>(script_, driver());
    });
    machine_->table().describe_for_libraries();
  }
  void TearDown() override {
    stream_.reset();
    memory_.reset();
    GpuRig::TearDown();
    EXPECT_EQ(script_.opened, 0);
  }
  void open_one(const std::string& which) {
    open(which);
    stream_ = new_stream("compute");
    memory_ = device_buffer(64 * kKiB);
  }
  TensorView tensor(ByteCount offset, const Shape& shape, DType dtype = DType::kF32) {
    ByteCount size = shape.element_count() * dtype_size_bytes(dtype);
    return {BufferView{memory_.get(), offset, size}, dtype, shape};
  }
  Result<Timepoint> multiply() {
    return device().ops().matmul(*stream_, {.out = tensor(0, {2, 2}),
                                            .a = tensor(4096, {2, 3}),
                                            .b = tensor(8192, {3, 2}),
                                            .bias = {},
                                            .transpose_a = false,
                                            .transpose_b = false,
                                            .accumulate = false,
                                            .label = "multiply"});
  }
  Result<Timepoint> attend(float drop_probability) {
    OpCall call;
    call.kind = OpKind::kAttentionForward;
    call.label = "attend";
    call.outputs = {tensor(0, {4, 8}), tensor(4096, {4, 1})};
    call.inputs[0] = tensor(8192, {4, 24});
    call.sequence = 4;
    call.heads = call.kv_heads = 1;
    call.head_dim = 8;
    call.drop_probability = drop_probability;
    return device().ops().run(*stream_, call);
  }
  /// Fake device memory is host memory.
  float* data(ByteCount offset) {
    return reinterpret_cast<float*>(memory_->device_address() + static_cast<uintptr_t>(offset));
  }
  void fill_operands() {
    for (int i = 0; i < 6; ++i) data(4096)[i] = static_cast<float>(i + 1);
    for (int i = 0; i < 6; ++i) data(8192)[i] = static_cast<float>(i % 2);
  }

  LibraryScript script_;
  std::unique_ptr<Stream> stream_;
  BufferHandle memory_;
};

TEST_F(GpuLibraryTest, ComputesWhatItServesInTheStreamsOrder) {
  open_one("0");
  fill_operands();
  ASSERT_TRUE(stream_->launch(hold_request(20'000'000)).is_ok());
  ASSERT_TRUE(multiply().is_ok());
  ASSERT_TRUE(stream_->synchronize().is_ok());
  EXPECT_EQ(script_.products, 1);
  EXPECT_EQ(data(0)[1], 1.0f + 2.0f + 3.0f);
  EXPECT_EQ(data(0)[2], 0.0f);
  EXPECT_EQ(data(0)[3], 4.0f + 5.0f + 6.0f);
  EXPECT_EQ(script_.least_scratch, 3000);
  EXPECT_EQ(device().counters().kernels, 2u);
}

TEST_F(GpuLibraryTest, OwnKernelsComputeWhatItDoesNotServe) {
  open_one("0");
  script_.serves = false;
  fill_operands();
  ASSERT_TRUE(multiply().is_ok());
  ASSERT_TRUE(stream_->synchronize().is_ok());
  EXPECT_EQ(script_.products, 0);
  EXPECT_EQ(data(0)[3], 4.0f + 5.0f + 6.0f);
}

TEST_F(GpuLibraryTest, AttentionWithDropoutIsNeverAskedFor) {
  open_one("0");
  ASSERT_TRUE(attend(0.0f).is_ok());
  ASSERT_TRUE(stream_->synchronize().is_ok());
  EXPECT_EQ(script_.attentions, 1);
  EXPECT_EQ(data(0)[0], 42.0f);
  ASSERT_TRUE(attend(0.5f).is_ok());
  ASSERT_TRUE(stream_->synchronize().is_ok());
  EXPECT_EQ(script_.attentions, 1);
}

TEST_F(GpuLibraryTest, ScratchLiesBehindWhatTheKernelsNeed) {
  open_one("0");
  machine_->table().set_workspace_bytes(1000);
  ASSERT_TRUE(multiply().is_ok());
  ASSERT_TRUE(stream_->synchronize().is_ok());
  EXPECT_EQ(script_.least_scratch, 3000);
}

TEST_F(GpuLibraryTest, AFailureToFindRefusesTheOp) {
  open_one("0");
  script_.find_failure = resource_exhausted("the library has no memory");
  auto refused = multiply();
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().site().verb, "matmul");
  EXPECT_EQ(refused.status().site().label, "multiply");
  EXPECT_NE(refused.status().message().find("the library has no memory"), std::string::npos);
}

TEST_F(GpuLibraryTest, AFailureToRunNamesTheOp) {
  open_one("0");
  script_.run_failure = internal_error("the library fell over");
  auto failed = multiply();
  EXPECT_EQ(failed.status().code(), StatusCode::kInternal);
  EXPECT_EQ(failed.status().site().verb, "matmul");
  EXPECT_NE(failed.status().message().find("the library fell over"), std::string::npos);
}

TEST_F(GpuLibraryTest, OptionsReachIt) {
  open_one("0");
  EXPECT_EQ(script_.request.device, "fake_gpu:0");
  EXPECT_FALSE(script_.request.fp16_accumulate);
  EXPECT_FALSE(script_.request.is_deterministic);
  EXPECT_EQ(device().ops().provider(OpKind::kMatmul), "scripted library");
  EXPECT_EQ(device().ops().provider(OpKind::kAttentionForward), "CPU oracle");
  stream_.reset();
  memory_.reset();
  close();
  open_one("0[fp16_accumulate=on]");
  EXPECT_TRUE(script_.request.fp16_accumulate);
}

TEST_F(GpuLibraryTest, ScratchIsWhatADeviceSetsAside) {
  open_one("0[memory=16M]");  // of which an eighth is set aside
  EXPECT_EQ(script_.request.product_scratch, 512 * kKiB);
  EXPECT_EQ(script_.request.attention_scratch, kMiB);
  GpuLibraryRequest large;
  large.limit_scratch(768 * kMiB);
  EXPECT_EQ(large.product_scratch, GpuLibraryRequest::kProductScratch);
  EXPECT_EQ(large.attention_scratch, GpuLibraryRequest::kAttentionScratch);
}

TEST_F(GpuLibraryTest, OffMeansNoneIsOpened) {
  open_one("0[libraries=off]");
  EXPECT_EQ(script_.opened, 0);
  EXPECT_EQ(device().ops().provider(OpKind::kMatmul), "CPU oracle (libraries=off)");
  EXPECT_EQ(device().ops().provider(OpKind::kGeluForward), "CPU oracle");
  ASSERT_TRUE(multiply().is_ok());
  ASSERT_TRUE(stream_->synchronize().is_ok());
}

TEST_F(GpuLibraryTest, EachLogicalDeviceHasItsOwn) {
  open_one("0x2");
  EXPECT_EQ(script_.opened, 2);
}

TEST_F(GpuLibraryTest, RegistryBringsDeterminism) {
  BackendRegistry registry;
  registry.add(machine_->make_backend());
  ASSERT_TRUE(registry.open_devices("fake_gpu:0").is_ok());
  EXPECT_FALSE(script_.request.is_deterministic);
  ASSERT_TRUE(registry.open_devices("fake_gpu:0", {.is_deterministic = true}).is_ok());
  EXPECT_TRUE(script_.request.is_deterministic);
}

TEST_F(GpuLibraryTest, NothingIsAllocatedAfterWarmUp) {
  open_one("0");
  auto run = [&] {
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(multiply().is_ok());
      ASSERT_TRUE(attend(0.0f).is_ok());
    }
    ASSERT_TRUE(stream_->synchronize().is_ok());
  };
  run();
  int64_t memory = driver().calls(FakeGpuFunction::allocate);
  EXPECT_TRUE(settles_without_allocating(run));
  EXPECT_EQ(driver().calls(FakeGpuFunction::allocate), memory);
}

}  // namespace
}  // namespace stagecoach
