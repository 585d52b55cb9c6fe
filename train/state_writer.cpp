#include "train/state_writer.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/check.h"
#include "core/digest.h"
#include "model/weight_folder.h"
#include "train/checkpoint_tensors.h"

namespace stagecoach {

namespace {

/// Of a parameter: a multiple of what has one scale, and little beside what a disk takes a second.
constexpr int64_t kPieceElements = 1024 * 1024;
static_assert(kPieceElements % kMomentScaleElements == 0);

/// sha256 of the bytes of tensors of a file in the order of `tensors`.
Result<std::string> tensors_sha256(const std::string& path,
                                   const std::vector<SafetensorsTensor>& tensors) {
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  Sha256 digest;
  std::vector<std::byte> piece;
  for (const SafetensorsTensor& tensor : tensors) {
    const SafetensorInfo* info = file.find(tensor.name);
    STAGECOACH_CHECK(info != nullptr);
    for (ByteCount first = 0; first < info->size; first += static_cast<ByteCount>(piece.size())) {
      piece.resize(static_cast<size_t>(
          std::min<ByteCount>(info->size - first, kPieceElements * ByteCount{sizeof(float)})));
      STAGECOACH_RETURN_IF_ERROR(file.read(*info, first, piece));
      digest.update(piece.data(), static_cast<ByteCount>(piece.size()));
    }
  }
  return digest.hex();
}

}  // namespace

Result<std::shared_ptr<StateWriter>> StateWriter::create(const std::string& folder,
                                                         const Trainer& trainer) {
  std::shared_ptr<StateWriter> writer(new StateWriter(trainer));
  STAGECOACH_RETURN_IF_ERROR(writer->open(folder));
  for (const ParameterBlock& block : trainer.network().blocks) {
    std::vector<Piece>& pieces = writer->pieces_.emplace_back();
    if (block.is_frozen) continue;  // of a base that is not saved, or a constant
    for (const ParameterInfo& parameter : block.parameters) {
      int64_t count = parameter.shape.element_count();
      for (int64_t first = 0; first < count; first += kPieceElements) {
        pieces.push_back({&parameter, first, std::min(kPieceElements, count - first)});
      }
    }
  }
  writer->buffer_.resize(kPieceElements);
  writer->pool_ = TaskPool::create(1);
  writer->worker_ = std::make_unique<HostWorker>("checkpoint", *writer->pool_);
  return writer;
}

StateWriter::~StateWriter() = default;

Status StateWriter::open(const std::string& folder) {
  auto make = [&](File& file, const char* name, std::vector<SafetensorsTensor> tensors) -> Status {
    file.path = folder + "/" + name;
    file.tensors = std::move(tensors);
    std::vector<SafetensorsTensor> sorted = file.tensors;
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    for (size_t index = 0; index < sorted.size(); ++index) {
      file.index.emplace(sorted[index].name, index);
    }
    STAGECOACH_ASSIGN_OR_RETURN(file.writer, SafetensorsWriter::create(file.path, sorted));
    return Status::ok();
  };
  STAGECOACH_RETURN_IF_ERROR(
      make(weights_, weights_file(trainer_.network()), weight_tensors(trainer_)));
  STAGECOACH_RETURN_IF_ERROR(make(moments_, kMomentsFile, moment_tensors(trainer_)));
  if (!trainer_.keeps_previous()) return Status::ok();
  return make(previous_, kPreviousFile, previous_tensors(trainer_));
}

Status StateWriter::write(File& file, const std::string& name, ByteCount first,
                          std::span<const std::byte> bytes) {
  return file.writer->write(file.index.find(name)->second, first, bytes);
}

void StateWriter::read(int block, int piece) {
  if (!status_.is_ok()) return;
  status_ = read_piece(block, pieces_[static_cast<size_t>(block)][static_cast<size_t>(piece)]);
}

Status StateWriter::read_piece(int block, const Piece& piece) {
  const HostState& state = trainer_.host_state();
  int64_t offset = piece.parameter->offset + piece.first;
  std::span<float> values = std::span(buffer_).first(static_cast<size_t>(piece.count));
  state.read_parameters(block, offset, values);
  const std::string& name = piece.parameter->name;
  STAGECOACH_RETURN_IF_ERROR(write(weights_, weight_name(trainer_.network(), *piece.parameter),
                                   piece.first * ByteCount{sizeof(float)}, std::as_bytes(values)));
  STAGECOACH_RETURN_IF_ERROR(read_moments(block, piece));
  if (!previous_.writer) return Status::ok();
  ByteCount size = dtype_size_bytes(trainer_.network().dtype);
  BufferView copy = state.compute_copy(block, state.version(block) - 1);
  const auto* from = reinterpret_cast<const std::byte*>(copy.host_data()) + offset * size;
  return write(previous_, name, piece.first * size,
               {from, static_cast<size_t>(piece.count * size)});
}

Status StateWriter::read_moments(int block, const Piece& piece) {
  const HostState& state = trainer_.host_state();
  const MomentOptions& moments = trainer_.moments();
  for (Moment moment : kept_moments(moments)) {
    MomentView view =
        state.moment(moment, block, piece.parameter->offset + piece.first, piece.count);
    std::string name = moment_name(*piece.parameter, moment);
    ByteCount first = piece.first * moment_value_bytes(moments.format);
    STAGECOACH_RETURN_IF_ERROR(write(moments_, name, first, view.values));
    if (view.scales.empty()) continue;
    ByteCount first_scale = piece.first / kMomentScaleElements * ByteCount{sizeof(float)};
    STAGECOACH_RETURN_IF_ERROR(
        write(moments_, name + kScalesSuffix, first_scale, std::as_bytes(view.scales)));
  }
  return Status::ok();
}

void StateWriter::finish() {
  if (status_.is_ok()) status_ = finish_files();
  is_done_ = true;
}

Status StateWriter::finish_files() {
  auto end = [](File& file, std::string& digest) -> Status {
    if (!file.writer) return Status::ok();
    STAGECOACH_RETURN_IF_ERROR(file.writer->finish());
    // Of what is in the file, so that no update waits for it and what is written is what is named.
    STAGECOACH_ASSIGN_OR_RETURN(digest, tensors_sha256(file.path, file.tensors));
    return Status::ok();
  };
  STAGECOACH_RETURN_IF_ERROR(end(weights_, digests_.weights));
  STAGECOACH_RETURN_IF_ERROR(end(moments_, digests_.moments));
  return end(previous_, digests_.previous);
}

Result<StateDigests> StateWriter::wait() {
  STAGECOACH_RETURN_IF_ERROR(wait_until_reached(worker_->last_submitted()));
  if (!status_.is_ok()) return status_;
  if (!is_done_) return failed_precondition("training ended before all had been read");
  return digests_;
}

}  // namespace stagecoach
