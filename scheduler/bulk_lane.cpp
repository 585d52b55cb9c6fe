#include "scheduler/bulk_lane.h"

#include <utility>

#include "core/check.h"

namespace stagecoach {

Result<std::unique_ptr<BulkLane>> BulkLane::create(Device& device, const std::string& name,
                                                   ByteCount chunk_bytes) {
  STAGECOACH_CHECK(chunk_bytes > 0);
  std::unique_ptr<BulkLane> lane(new BulkLane(chunk_bytes));
  for (size_t index = 0; index < lane->streams_.size(); ++index) {
    StreamOptions options{index == 0 ? name : name + "_2"};
    STAGECOACH_ASSIGN_OR_RETURN(lane->streams_[index], device.create_stream(options));
    STAGECOACH_ASSIGN_OR_RETURN(lane->handed_over_[index], device.create_event());
  }
  return lane;
}

Status BulkLane::wait(Timepoint timepoint) {
  STAGECOACH_RETURN_IF_FAILED(stream().wait(timepoint));
  return Status::ok();
}

Status BulkLane::record(Event& event) {
  STAGECOACH_RETURN_IF_FAILED(stream().record(event));
  return Status::ok();
}

Status BulkLane::switch_streams() {
  Event& end = *handed_over_[current_];
  STAGECOACH_RETURN_IF_FAILED(stream().record(end));
  current_ = 1 - current_;
  STAGECOACH_RETURN_IF_FAILED(stream().wait(end));
  return Status::ok();
}

Status BulkLane::copy(const CopyRequest& request) {
  BulkPieces pieces(request.target.size, chunk_bytes_);
  for (int64_t piece = 0; piece < pieces.count(); ++piece) {
    if (std::exchange(is_taken_, true)) STAGECOACH_RETURN_IF_ERROR(switch_streams());
    ByteCount offset = pieces.offset(piece), size = pieces.size(piece);
    STAGECOACH_RETURN_IF_FAILED(stream().copy(
        {request.target.slice(offset, size), request.source.slice(offset, size), request.label}));
  }
  return Status::ok();
}

}  // namespace stagecoach
