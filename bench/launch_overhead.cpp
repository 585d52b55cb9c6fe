// What the HAL adds to a driver call: the same verb through Stream and straight through the driver
// table, on real cards; and through the HAL alone where there is none to compare with.
// usage: launch_overhead [DEVICE]   (cuda:0, hip:0; default: the first of these that is there)
#include <benchmark/benchmark.h>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "backends/gpu/gpu_context.h"
#include "backends/register_backends.h"
#include "core/settings.h"
#include "hal/hal.h"
#if STAGECOACH_CUDA
#include "backends/cuda/cuda_api.h"
#endif
#if STAGECOACH_HIP
#include "backends/hip/hip_api.h"
#endif

namespace stagecoach {
namespace {

constexpr ByteCount kBytes = 256;  // small: the call is measured, not the copy
constexpr int kBatch = 200;        // fewer than a driver's queue holds, so that no call blocks

/// Verbs to time; `drain` waits for them.
struct Verbs {
  std::function<void()> fill;
  std::function<void()> copy;
  std::function<void()> record;
  std::function<void()> wait;
  std::function<void()> drain;
};

void run_batches(benchmark::State& state, const std::function<void()>& verb,
                 const std::function<void()>& drain) {
  while (state.KeepRunningBatch(kBatch)) {
    for (int i = 0; i < kBatch; ++i) verb();
    state.PauseTiming();
    drain();
    state.ResumeTiming();
  }
}

void add(const std::string& way, const Verbs& verbs) {
  auto one = [&](const char* name, const std::function<void()>& verb) {
    benchmark::RegisterBenchmark(
        (std::string(name) + "/" + way).c_str(),
        [verb, drain = verbs.drain](benchmark::State& state) { run_batches(state, verb, drain); });
  };
  one("fill", verbs.fill);
  one("copy", verbs.copy);
  one("record", verbs.record);
  one("wait", verbs.wait);
}

/// What the verbs of the HAL work on.
struct HalObjects {
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Stream> stream, other;
  std::unique_ptr<Event> event;
  BufferHandle memory, host;
};

Result<HalObjects> open_hal(const std::string& device) {
  HalObjects hal;
  STAGECOACH_ASSIGN_OR_RETURN(hal.devices, built_in_backends().open_devices(device));
  Device& first = *hal.devices.front();
  STAGECOACH_ASSIGN_OR_RETURN(hal.stream, first.create_stream({"bench"}));
  STAGECOACH_ASSIGN_OR_RETURN(hal.other, first.create_stream({"other"}));
  STAGECOACH_ASSIGN_OR_RETURN(hal.event, first.create_event());
  STAGECOACH_ASSIGN_OR_RETURN(
      hal.memory, require_buffer(first.allocate(kBytes, "bench"), first, kBytes, "bench"));
  STAGECOACH_ASSIGN_OR_RETURN(
      hal.host, require_buffer(first.allocate_pinned(kBytes, "bench"), first, kBytes, "bench"));
  STAGECOACH_RETURN_IF_FAILED(hal.stream->record(*hal.event));
  return hal;
}

void check(bool fine) {
  if (fine) return;
  std::fprintf(stderr, "launch_overhead: a call failed\n");
  std::abort();
}

Verbs hal_verbs(HalObjects& hal) {
  Verbs verbs;
  verbs.fill = [&] { check(hal.stream->fill({hal.memory->view(), 0, 4, "bench"}).is_ok()); };
  verbs.copy = [&] {
    check(hal.stream->copy({hal.memory->view(), hal.host->view(), "bench"}).is_ok());
  };
  verbs.record = [&] { check(hal.stream->record(*hal.event).is_ok()); };
  verbs.wait = [&] { check(hal.other->wait(*hal.event).is_ok()); };
  verbs.drain = [&] {
    check(hal.stream->synchronize().is_ok());
    check(hal.other->synchronize().is_ok());
  };
  return verbs;
}

/// The same straight through the table, in the context of the open device.
template <typename Api>
Verbs raw_verbs(const Api& api, HalObjects& hal) {
  int card = 0;
  void* context = nullptr;
  void *stream = nullptr, *other = nullptr, *event = nullptr;
  check(api.init() == 0 && api.device_get(0, &card) == 0);
  check(api.retain_context(card, &context) == 0 && api.set_current(context) == 0);
  check(api.create_stream(&stream) == 0 && api.create_stream(&other) == 0);
  check(api.create_event(&event, false) == 0 && api.record_event(event, stream) == 0);
  GpuAddress memory = hal.memory->device_address();
  GpuAddress host = hal.host->device_address();
  Verbs verbs;
  verbs.fill = [=] { check(api.fill32_async(memory, 0, kBytes / 4, stream) == 0); };
  verbs.copy = [=] {
    check(api.copy_async(memory, host, kBytes, CopyDirection::kHostToDevice, stream) == 0);
  };
  verbs.record = [=] { check(api.record_event(event, stream) == 0); };
  verbs.wait = [=] { check(api.stream_wait_event(other, event) == 0); };
  verbs.drain = [=] {
    for (void* one : {stream, other}) {
      while (api.query_stream(one) == Api::kNotReady) {
      }
    }
  };
  return verbs;
}

Status run(std::string device) {
  const Settings settings = read_settings().is_ok() ? read_settings().value() : Settings();
  if (device.empty()) {
    BackendRegistry registry = built_in_backends();
    for (const char* name : {"cuda", "hip"}) {
      Backend* backend = registry.find(name);
      if (device.empty() && backend != nullptr && backend->availability().is_ok()) {
        device = std::string(name) + ":0";
      }
    }
  }
  if (device.empty()) return unavailable("no GPU here; name a device such as cpu:1");
  STAGECOACH_ASSIGN_OR_RETURN(HalObjects hal, open_hal(device));
  add(device, hal_verbs(hal));
#if STAGECOACH_CUDA
  if (device.rfind("cuda:0", 0) == 0) {
    STAGECOACH_ASSIGN_OR_RETURN(CudaFunctions functions,
                                load_cuda_functions(cuda_library_names(settings.cuda_library)));
    add("driver", raw_verbs(CudaApi(functions), hal));
  }
#endif
#if STAGECOACH_HIP
  if (device.rfind("hip:0", 0) == 0) {
    STAGECOACH_ASSIGN_OR_RETURN(HipFunctions functions,
                                load_hip_functions(hip_library_names(settings.hip_library)));
    add("driver", raw_verbs(HipApi(functions), hal));
  }
#endif
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();
  return Status::ok();
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  stagecoach::Status status = stagecoach::run(argc > 1 ? argv[1] : "");
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 2;
}
