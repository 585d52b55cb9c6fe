#include "hal/validation.h"

#include <cmath>
#include <fmt/format.h>
#include <typeinfo>

namespace stagecoach::internal {

namespace {

/// The bytes of a view as an address range in whatever space the buffer lives in.
uintptr_t first_address(const BufferView& view) {
  return view.buffer->device_address() + static_cast<uintptr_t>(view.offset);
}

bool share_an_address_space(const Buffer& left, const Buffer& right) {
  if (is_host(left.kind()) != is_host(right.kind())) return false;
  return is_host(left.kind()) || &left.device() == &right.device();
}

bool overlap(const BufferView& left, const BufferView& right) {
  if (!share_an_address_space(*left.buffer, *right.buffer)) return false;
  uintptr_t left_start = first_address(left), right_start = first_address(right);
  return left_start < right_start + static_cast<uintptr_t>(right.size) &&
         right_start < left_start + static_cast<uintptr_t>(left.size);
}

Status validate_copy_places(const CopyRequest& request, Device& device) {
  const Buffer& target = *request.target.buffer;
  const Buffer& source = *request.source.buffer;
  const Device* home = &device.root();
  bool target_is_away = !is_host(target.kind()) && &target.device() != home;
  bool source_is_away = !is_host(source.kind()) && &source.device() != home;
  if (!target_is_away && !source_is_away) return Status::ok();
  const Device& away = target_is_away ? target.device() : source.device();
  bool touches_home =
      copy_direction(request) == CopyDirection::kDeviceToDevice && target_is_away != source_is_away;
  if (!touches_home) {
    return invalid_argument(
        fmt::format("the memory of {} is not this device's; copy on a stream "
                    "of {}",
                    away.id(), away.id()));
  }
  if (away.info().backend != device.info().backend) {
    return invalid_argument(
        fmt::format("a copy between {} and {} crosses backends; go through "
                    "pinned host memory",
                    source.device().id(), target.device().id()));
  }
  return Status::ok();
}

}  // namespace

Status validate_view(const BufferView& view, std::string_view role) {
  if (view.is_none()) return invalid_argument(fmt::format("{} has no buffer; set one", role));
  ByteCount whole = view.buffer->size();
  if (view.size <= 0 || view.offset < 0 || view.offset > whole || view.size > whole - view.offset) {
    return invalid_argument(
        fmt::format("{} is {} bytes at offset {} of buffer '{}', which holds {}; name at least one "
                    "byte inside it",
                    role, view.size, view.offset, view.buffer->label().view(), whole));
  }
  return Status::ok();
}

Status validate_device_memory(const BufferView& view, const Device& device, std::string_view role) {
  STAGECOACH_RETURN_IF_ERROR(validate_view(view, role));
  const Buffer& buffer = *view.buffer;
  if (is_host(buffer.kind())) {
    return invalid_argument(fmt::format("{} is {} host memory ('{}'); copy it to the device first",
                                        role, memory_kind_name(buffer.kind()),
                                        buffer.label().view()));
  }
  if (&buffer.device() != &const_cast<Device&>(device).root()) {
    return invalid_argument(fmt::format("{} ('{}') is memory of {}; pass memory of {}", role,
                                        buffer.label().view(), buffer.device().id(), device.id()));
  }
  return Status::ok();
}

Status validate_copy(const CopyRequest& request, Device& device) {
  STAGECOACH_RETURN_IF_ERROR(validate_view(request.target, "the target"));
  STAGECOACH_RETURN_IF_ERROR(validate_view(request.source, "the source"));
  if (request.target.size != request.source.size) {
    return invalid_argument(fmt::format("the target is {} bytes and the source {}; make them equal",
                                        request.target.size, request.source.size));
  }
  STAGECOACH_RETURN_IF_ERROR(validate_copy_places(request, device));
  if (overlap(request.target, request.source)) {
    return invalid_argument("source and target overlap; copy through a third buffer");
  }
  return Status::ok();
}

Status validate_fill(const FillRequest& request, Device& device) {
  STAGECOACH_RETURN_IF_ERROR(validate_device_memory(request.target, device, "the target"));
  int size = request.pattern_size;
  if (size != 1 && size != 2 && size != 4) {
    return invalid_argument(fmt::format("pattern_size is {}; it must be 1, 2 or 4", size));
  }
  if (request.target.size % size != 0 || request.target.offset % size != 0) {
    return invalid_argument(
        fmt::format("the target is {} bytes at offset {}; both must be multiples of pattern_size "
                    "{}",
                    request.target.size, request.target.offset, size));
  }
  return Status::ok();
}

Status validate_launch(const LaunchRequest& request, Device& device) {
  if (request.kernel == nullptr) {
    return invalid_argument("the launch has no kernel; take one from Executable::find_kernel");
  }
  if (request.argument_count < 0 || request.argument_count > LaunchRequest::kMaxArguments) {
    return invalid_argument(fmt::format("argument_count is {}; it must be 0 to {}",
                                        request.argument_count, LaunchRequest::kMaxArguments));
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (request.grid[axis] > 0 && request.block[axis] > 0) continue;
    return invalid_argument(fmt::format("grid {} and block {} of axis {} must be above 0",
                                        request.grid[axis], request.block[axis], axis));
  }
  if (!std::isfinite(request.flop) || request.flop < 0) {
    return invalid_argument(fmt::format("flop is {}; it must be 0 or more", request.flop));
  }
  for (int i = 0; i < request.argument_count; ++i) {
    const KernelArgument& argument = request.arguments[i];
    if (argument.kind != KernelArgument::Kind::kPointer) continue;
    Status valid = validate_device_memory(argument.pointer, device, "a kernel argument");
    if (!valid.is_ok()) return valid.with_context(fmt::format("argument {}", i));
  }
  return Status::ok();
}

bool share_events(const Device& waiter, const Device& owner) {
  // A decorator's stream unwraps events, so it must be handed events wrapped the same way.
  return waiter.info().backend == owner.info().backend && typeid(waiter) == typeid(owner);
}

}  // namespace stagecoach::internal
