#include "train/state_writer.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "core/check.h"
#include "core/digest.h"
#include "memory/arena.h"
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

StateWriter::StateWriter(const Trainer& trainer, SaveCopies copies)
    : trainer_(trainer),
      copies_(std::move(copies)),
      pool_of_copies_(copies_ ? static_cast<ByteCount>(copies_->size()) : 0) {}

Result<std::shared_ptr<StateWriter>> StateWriter::create(const std::string& folder,
                                                         const Trainer& trainer,
                                                         SaveCopies copies) {
  std::shared_ptr<StateWriter> writer(new StateWriter(trainer, std::move(copies)));
  STAGECOACH_RETURN_IF_ERROR(writer->open(folder));
  for (const ParameterBlock& block : trainer.network().blocks) writer->add_pieces(block);
  writer->copy_places_.resize(writer->pieces_.size(), 0);
  writer->buffer_.resize(kPieceElements);
  // Copies share the threads out, as long as there is anything to copy to.
  writer->pool_ = TaskPool::create(writer->copies_ ? usable_thread_count() : 1);
  writer->worker_ = std::make_unique<HostWorker>("checkpoint", *writer->pool_);
  writer->copier_ = std::make_unique<HostWorker>("copies", *writer->pool_);
  return writer;
}

StateWriter::~StateWriter() = default;

void StateWriter::add_pieces(const ParameterBlock& block) {
  std::vector<Piece>& pieces = pieces_.emplace_back();
  ByteCount& bytes = copy_bytes_.emplace_back(0);
  if (block.is_frozen) return;  // of a base that is not saved, or a constant
  for (const ParameterInfo& parameter : block.parameters) {
    int64_t count = parameter.shape.element_count();
    for (int64_t first = 0; first < count; first += kPieceElements) {
      Piece& piece = pieces.emplace_back();
      piece.parameter = &parameter;
      piece.first = first;
      piece.count = std::min(kPieceElements, count - first);
      piece.place = bytes;
      add_parts(piece);
      for (size_t part = 0; part < piece.part_count; ++part) bytes += piece.parts[part].size;
      bytes = Arena::padded(bytes);
    }
  }
}

/// In the order of `gather`.
void StateWriter::add_parts(Piece& piece) {
  auto add = [&piece](File& file, const std::string& name, ByteCount first, ByteCount size) {
    piece.parts[piece.part_count++] = {&file, file.index.find(name)->second, first, size};
  };
  constexpr ByteCount kFloat = sizeof(float);
  add(weights_, weight_name(trainer_.network(), *piece.parameter), piece.first * kFloat,
      piece.count * kFloat);
  const MomentOptions& moments = trainer_.moments();
  for (Moment moment : kept_moments(moments)) {
    std::string name = moment_name(*piece.parameter, moment);
    ByteCount size = moment_value_bytes(moments.format);
    add(moments_, name, piece.first * size, piece.count * size);
    if (moments.format != MomentFormat::kBlockwise8) continue;
    int64_t scales = (piece.count + kMomentScaleElements - 1) / kMomentScaleElements;
    add(moments_, name + kScalesSuffix, piece.first / kMomentScaleElements * kFloat,
        scales * kFloat);
  }
  if (!previous_.writer) return;
  ByteCount size = dtype_size_bytes(trainer_.network().dtype);
  add(previous_, piece.parameter->name, piece.first * size, piece.count * size);
}

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

Status StateWriter::write(const Piece& piece, const Sources& sources) {
  for (size_t index = 0; index < piece.part_count; ++index) {
    const Part& part = piece.parts[index];
    STAGECOACH_CHECK(static_cast<ByteCount>(sources[index].size()) == part.size);
    STAGECOACH_RETURN_IF_ERROR(part.file->writer->write(part.tensor, part.first, sources[index]));
  }
  return Status::ok();
}

void StateWriter::read(int block, int piece, bool from_copy) {
  if (!status_.is_ok()) return;
  const Piece& asked = pieces_[static_cast<size_t>(block)][static_cast<size_t>(piece)];
  status_ = write(asked, from_copy ? sources_of_copy(block, asked) : gather(block, asked, buffer_));
}

/// What the state holds of a piece: weights as fp32 in `values`, the rest where it lies.
StateWriter::Sources StateWriter::gather(int block, const Piece& piece,
                                         std::span<float> values) const {
  const HostState& state = trainer_.host_state();
  int64_t offset = piece.parameter->offset + piece.first;
  values = values.first(static_cast<size_t>(piece.count));
  state.read_parameters(block, offset, values);
  Sources sources;
  size_t count = 0;
  sources[count++] = std::as_bytes(values);
  for (Moment moment : kept_moments(trainer_.moments())) {
    MomentView view = state.moment(moment, block, offset, piece.count);
    sources[count++] = view.values;
    if (!view.scales.empty()) sources[count++] = std::as_bytes(view.scales);
  }
  if (previous_.writer) {
    ByteCount size = dtype_size_bytes(trainer_.network().dtype);
    BufferView copy = state.compute_copy(block, state.version(block) - 1);
    const auto* from = reinterpret_cast<const std::byte*>(copy.host_data()) + offset * size;
    sources[count++] = {from, static_cast<size_t>(piece.count * size)};
  }
  return sources;
}

bool StateWriter::reserve_copy(int block) {
  ByteCount bytes = copy_bytes_[static_cast<size_t>(block)];
  std::optional<ByteCount> place = bytes > 0 ? pool_of_copies_.reserve(bytes) : std::nullopt;
  if (!place) return false;
  copy_places_[static_cast<size_t>(block)] = *place;
  copied_bytes_ += bytes;
  return true;
}

void StateWriter::release_copy(int block) {
  pool_of_copies_.release(copy_places_[static_cast<size_t>(block)]);
}

StateWriter::Sources StateWriter::sources_of_copy(int block, const Piece& piece) const {
  Sources sources;
  ByteCount place = copy_places_[static_cast<size_t>(block)] + piece.place;
  for (size_t part = 0; part < piece.part_count; ++part) {
    ByteCount size = piece.parts[part].size;
    sources[part] =
        std::span(*copies_).subspan(static_cast<size_t>(place), static_cast<size_t>(size));
    place += size;
  }
  return sources;
}

void StateWriter::copy(int block, TaskPool& pool) {
  const std::vector<Piece>& pieces = pieces_[static_cast<size_t>(block)];
  pool.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t index) {
    const Piece& piece = pieces[static_cast<size_t>(index)];
    std::byte* to = copies_->data() + copy_places_[static_cast<size_t>(block)] + piece.place;
    // Pieces begin at multiples of what any number is aligned to.
    std::span<float> values(reinterpret_cast<float*>(to), static_cast<size_t>(piece.count));
    Sources sources = gather(block, piece, values);
    to += piece.parts[0].size;
    for (size_t part = 1; part < piece.part_count; ++part) {
      std::memcpy(to, sources[part].data(), sources[part].size());
      to += sources[part].size();
    }
  });
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
