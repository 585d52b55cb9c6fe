#include "tests/conformance/conformance_test.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stagecoach {

namespace {

constexpr int kTestLimitS = 60;  // generous: sanitizers and a busy host
constexpr int kPoisonByte = 0xa5;

}  // namespace

Watchdog::Watchdog(std::string what, int limit_s)
    : thread_([this, text = std::move(what), limit_s] {
        std::unique_lock lock(mutex_);
        if (disarm_.wait_for(lock, std::chrono::seconds(limit_s), [this] { return disarmed_; })) {
          return;
        }
        std::fprintf(stderr, "%s did not end within %d s\n", text.c_str(), limit_s);
        std::abort();
      }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    disarmed_ = true;
  }
  disarm_.notify_all();
  thread_.join();
}

void ConformanceTest::SetUp() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  watchdog_ = std::make_unique<Watchdog>(info->name(), kTestLimitS);
  auto opened = GetParam().open(2);
  ASSERT_TRUE(is_ok(opened));
  devices_ = std::move(opened).value();
  if (GetParam().cannot.count(Feature::kTestKernels) != 0) return;
  for (auto& one : devices_) {
    auto executable = one->load_executable(GetParam().test_kernels);
    ASSERT_TRUE(is_ok(executable));
    executables_.push_back(std::move(executable).value());
  }
}

void ConformanceTest::TearDown() {
  kept_.clear();
  executables_.clear();
  devices_.clear();
  watchdog_.reset();
}

std::unique_ptr<Stream> ConformanceTest::new_stream(const char* name, size_t device_index) {
  auto stream = device(device_index).create_stream({name});
  EXPECT_TRUE(is_ok(stream));
  return std::move(stream).value();
}

std::unique_ptr<Event> ConformanceTest::new_event(EventOptions options, size_t device_index) {
  auto event = device(device_index).create_event(options);
  EXPECT_TRUE(is_ok(event));
  return std::move(event).value();
}

BufferHandle ConformanceTest::device_buffer(ByteCount size, size_t device_index) {
  Device& owner = device(device_index);
  auto buffer = require_buffer(owner.allocate(size, "test"), owner, size, "test");
  EXPECT_TRUE(is_ok(buffer));
  return std::move(buffer).value();
}

BufferHandle ConformanceTest::pinned_buffer(ByteCount size, size_t device_index) {
  Device& owner = device(device_index);
  auto buffer = require_buffer(owner.allocate_pinned(size, "test host"), owner, size, "test host");
  EXPECT_TRUE(is_ok(buffer));
  std::memset(buffer.value()->host_data(), kPoisonByte, static_cast<size_t>(size));
  return std::move(buffer).value();
}

BufferHandle ConformanceTest::pinned_floats(const std::vector<float>& values) {
  BufferHandle buffer = pinned_buffer(static_cast<ByteCount>(values.size() * sizeof(float)));
  std::memcpy(buffer->host_data(), values.data(), values.size() * sizeof(float));
  return buffer;
}

BufferHandle ConformanceTest::upload(const std::vector<float>& values, size_t device_index) {
  BufferHandle host = pinned_floats(values);
  BufferHandle target = device_buffer(host->size(), device_index);
  auto stream = new_stream("upload", device_index);
  EXPECT_TRUE(is_ok(stream->copy({target->view(), host->view(), "upload"})));
  EXPECT_TRUE(is_ok(stream->synchronize()));
  return target;
}

std::vector<uint32_t> ConformanceTest::download_words(BufferView view) {
  size_t index = &view.buffer->device() == &device(0).root() ? 0 : 1;
  BufferHandle host = pinned_buffer(view.size, index);
  auto stream = new_stream("download", index);
  EXPECT_TRUE(is_ok(stream->copy({host->view(), view, "download"})));
  EXPECT_TRUE(is_ok(stream->synchronize()));
  std::vector<uint32_t> words(static_cast<size_t>(view.size) / sizeof(uint32_t));
  std::memcpy(words.data(), host->host_data(), words.size() * sizeof(uint32_t));
  return words;
}

std::vector<float> ConformanceTest::download(BufferView view) {
  std::vector<uint32_t> words = download_words(view);
  std::vector<float> values(words.size());
  std::memcpy(values.data(), words.data(), words.size() * sizeof(float));
  return values;
}

Kernel* ConformanceTest::kernel(const char* name, size_t device_index) {
  auto found = executables_[device_index]->find_kernel(name);
  EXPECT_TRUE(is_ok(found));
  return found.value();
}

LaunchRequest ConformanceTest::fill_request(BufferView out, float value) {
  LaunchRequest request;
  request.kernel = kernel("fill_f32");
  int64_t count = out.size / static_cast<ByteCount>(sizeof(float));
  request.grid = {count, 1, 1};
  request.arguments[0] = KernelArgument::of(out);
  request.arguments[1] = KernelArgument::of(count);
  request.arguments[2] = KernelArgument::of(value);
  request.argument_count = 3;
  request.flop = static_cast<double>(count);
  request.label = "fill kernel";
  return request;
}

void ConformanceTest::hold(Stream& stream, int64_t duration_ns) {
  LaunchRequest request;
  request.kernel = kernel("busy_wait", &stream.device() == &device(0) ? 0 : 1);
  request.arguments[0] = KernelArgument::of(duration_ns);
  request.argument_count = 1;
  request.label = "hold";
  ASSERT_TRUE(is_ok(stream.launch(request)));
}

void ConformanceTest::make_fail(Stream& stream) {
  constexpr ByteCount kWord = 4;
  size_t index = &stream.device() == &device(0) ? 0 : 1;
  BufferHandle ids = device_buffer(kWord, index);
  BufferHandle table = upload({1, 2, 3, 4}, index);
  BufferHandle out = device_buffer(2 * kWord, index);
  Ops::EmbeddingForward request{};
  request.out = {out->view(), DType::kF32, Shape{1, 2}};
  request.ids = {ids->view(), DType::kI32, Shape{1}};
  request.table = {table->view(), DType::kF32, Shape{2, 2}};
  request.sequence = 1;
  request.label = "bad id";
  // The pattern reads as id 7, of a vocabulary of 2.
  ASSERT_TRUE(is_ok(stream.fill({ids->view(), 7, 4, "bad id"})));
  ASSERT_TRUE(is_ok(stream.device().ops().embedding_forward(stream, request)));
  kept_.push_back(std::move(ids));
  kept_.push_back(std::move(table));
  kept_.push_back(std::move(out));
}

testing::AssertionResult is_ok(const Status& status) {
  if (status.is_ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status.to_string();
}

testing::AssertionResult has_code(const Status& status, StatusCode code) {
  if (status.code() == code) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "expected " << status_code_name(code) << ", got " << status.to_string();
}

}  // namespace stagecoach
