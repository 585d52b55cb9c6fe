#pragma once

// Bodies of GpuStream that move bytes, included by gpu_stream_verbs.h alone.

#include "backends/gpu/gpu_stream.h"

namespace stagecoach {

template <typename Api>
int GpuStream<Api>::copy_bytes(GpuAddress target, GpuAddress source, const CopyRequest& request) {
  const Api& api = core_.api();
  auto size = static_cast<size_t>(request.target.size);
  CopyDirection direction = copy_direction(request);
  if (direction == CopyDirection::kDeviceToDevice) {
    auto core_of = [](const BufferView& view) -> GpuDeviceCore<Api>& {
      return static_cast<GpuBuffer<Api>*>(view.buffer)->core();
    };
    GpuContextHandle to = core_of(request.target).context();
    GpuContextHandle from = core_of(request.source).context();
    if (to != from) return api.copy_peer_async(target, to, source, from, size, handle_);
  }
  return api.copy_async(target, source, size, direction, handle_);
}

template <typename Api>
Status GpuStream<Api>::do_copy(const CopyRequest& request) {
  STAGECOACH_RETURN_IF_ERROR(drive("copy", [&] {
    return copy_bytes(internal::gpu_address_of(request.target),
                      internal::gpu_address_of(request.source), request);
  }));
  GpuStreamTotals amount;
  amount.copies = 1;
  CopyDirection direction = copy_direction(request);
  ByteCount size = request.target.size;
  if (direction == CopyDirection::kHostToDevice) amount.bytes_up = size;
  if (direction == CopyDirection::kDeviceToHost) amount.bytes_down = size;
  const Device& from = request.source.buffer->device();
  const Device& to = request.target.buffer->device();
  if (direction == CopyDirection::kDeviceToDevice && &from != &to) {
    // The bytes leave one device and enter the other; the far end counts them when submitted.
    if (&from == &device()) {
      amount.bytes_down = size;
      static_cast<GpuBuffer<Api>*>(request.target.buffer)->core().far_bytes_up += size;
    } else {
      amount.bytes_up = size;
      static_cast<GpuBuffer<Api>*>(request.source.buffer)->core().far_bytes_down += size;
    }
  }
  count(amount);
  return Status::ok();
}

template <typename Api>
Status GpuStream<Api>::do_fill(const FillRequest& request) {
  const Api& api = core_.api();
  GpuAddress target = internal::gpu_address_of(request.target);
  auto elements = static_cast<size_t>(request.target.size / request.pattern_size);
  STAGECOACH_RETURN_IF_ERROR(drive("fill", [&] {
    if (request.pattern_size == 1) {
      return api.fill8_async(target, static_cast<uint8_t>(request.pattern), elements, handle_);
    }
    if (request.pattern_size == 2) {
      return api.fill16_async(target, static_cast<uint16_t>(request.pattern), elements, handle_);
    }
    return api.fill32_async(target, request.pattern, elements, handle_);
  }));
  count({});
  return Status::ok();
}

}  // namespace stagecoach
