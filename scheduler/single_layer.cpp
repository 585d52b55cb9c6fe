#include "scheduler/single_layer.h"

#include <algorithm>
#include <cstring>

#include "core/random.h"

namespace stagecoach {

namespace {

constexpr ByteCount kPieceBytes = ByteCount{4} << 20;
constexpr float kLargest = 0.05f;  ///< about what trained weights are

/// One element of random contents.
void write_element(DType dtype, uint32_t word, int64_t vocabulary, std::byte* target) {
  float number = static_cast<float>(static_cast<int32_t>(word)) / 2147483648.0f * kLargest;
  if (dtype == DType::kF32) {
    std::memcpy(target, &number, sizeof(number));
  } else if (dtype == DType::kBF16) {
    uint16_t bits = to_bfloat16(number).bits;
    std::memcpy(target, &bits, sizeof(bits));
  } else if (dtype == DType::kF16) {
    uint16_t bits = to_float16(number).bits;
    std::memcpy(target, &bits, sizeof(bits));
  } else {
    auto id = static_cast<int32_t>(word % static_cast<uint32_t>(vocabulary));
    std::memcpy(target, &id, sizeof(id));
  }
}

/// Copies `piece` over and over, until `target` is full.
Status repeat_piece(Stream& stream, const BufferView& piece, const BufferView& target) {
  for (ByteCount at = 0; at < target.size; at += piece.size) {
    ByteCount size = std::min(piece.size, target.size - at);
    STAGECOACH_RETURN_IF_FAILED(
        stream.copy({target.slice(at, size), piece.slice(0, size), "random contents"}));
  }
  return Status::ok();
}

}  // namespace

SingleLayer::SingleLayer(Device& device, Stream& stream, const Layer& layer,
                         const MicroBatchShape& shape)
    : device_(device), layer_(layer) {
  run_.stream = &stream;
  run_.shape = shape;
}

Result<std::unique_ptr<SingleLayer>> SingleLayer::create(Device& device, Stream& stream,
                                                         const Network& network, int layer,
                                                         const MicroBatchShape& shape) {
  const Layer& subject = *network.layers[static_cast<size_t>(layer)];
  std::unique_ptr<SingleLayer> single(new SingleLayer(device, stream, subject, shape));
  STAGECOACH_RETURN_IF_ERROR(single->allocate(network, layer == 0));
  return single;
}

Result<BufferView> SingleLayer::memory(ByteCount size, DType dtype) {
  if (size == 0) return BufferView{};
  STAGECOACH_ASSIGN_OR_RETURN(
      BufferHandle buffer,
      require_buffer(device_.allocate(size, "single layer"), device_, size, "single layer"));
  buffers_.push_back(std::move(buffer));
  dtypes_.push_back(dtype);
  return buffers_.back()->view();
}

Status SingleLayer::allocate(const Network& network, bool is_first) {
  const MicroBatchShape& shape = run_.shape;
  for (const BlockUse& use : layer_.uses()) {
    ByteCount size = network.block_bytes(use.block, network.dtype);
    STAGECOACH_ASSIGN_OR_RETURN(BufferView parameters, memory(size, network.dtype));
    parameters_.push_back(parameters);
    bool is_frozen = network.blocks[static_cast<size_t>(use.block)].is_frozen;
    ByteCount gradient_size = is_frozen ? 0 : network.block_bytes(use.block, DType::kF32);
    STAGECOACH_ASSIGN_OR_RETURN(BufferView gradients, memory(gradient_size, DType::kF32));
    gradients_.push_back(gradients);
  }
  run_.parameters = parameters_;
  run_.gradients = gradients_;
  const BoundaryInfo input = layer_.input(), output = layer_.output();
  STAGECOACH_ASSIGN_OR_RETURN(run_.input, memory(input.size_bytes(shape), input.dtype));
  STAGECOACH_ASSIGN_OR_RETURN(output_, memory(output.size_bytes(shape), output.dtype));
  if (!is_first) {
    STAGECOACH_ASSIGN_OR_RETURN(run_.input_grad, memory(input.size_bytes(shape), input.dtype));
  }
  for (RowInput rows : kRowInputs) {
    if (!layer_.needs(rows)) continue;
    BoundaryInfo info = network.row_input(rows);
    STAGECOACH_ASSIGN_OR_RETURN(run_.rows[rows], memory(info.size_bytes(shape), info.dtype));
  }
  if (!layer_.needs(RowInput::kLabels)) {
    STAGECOACH_ASSIGN_OR_RETURN(run_.output_grad, memory(output.size_bytes(shape), output.dtype));
  }
  STAGECOACH_ASSIGN_OR_RETURN(run_.report, memory(layer_.report_bytes(shape), DType::kF32));
  LayerMemory need = layer_.memory(shape);
  ByteCount workspace = std::max(need.forward_workspace_bytes, need.backward_workspace_bytes);
  STAGECOACH_ASSIGN_OR_RETURN(run_.saved, memory(need.saved_bytes, network.dtype));
  STAGECOACH_ASSIGN_OR_RETURN(run_.workspace, memory(workspace, network.dtype));
  return Status::ok();
}

Status SingleLayer::run(LayerPhase phase, Ops& ops) {
  LayerRun run = run_;
  run.ops = &ops;
  run.output = output_;
  switch (phase) {
    case LayerPhase::kForward:
      return layer_.forward(run);
    case LayerPhase::kSavingForward:
      return layer_.forward_saving(run);
    case LayerPhase::kEarlyStop:
      run.output = {};
      return layer_.forward_saving(run);
    case LayerPhase::kBackward:
      return layer_.backward(run, BackwardPart::kBoth);
    case LayerPhase::kInput:
      return layer_.backward(run, BackwardPart::kInput);
    case LayerPhase::kWeight:
      return layer_.backward(run, BackwardPart::kWeight);
  }
  return Status::ok();
}

Status SingleLayer::fill_randomly(int64_t vocabulary, uint64_t seed) {
  STAGECOACH_ASSIGN_OR_RETURN(BufferHandle piece,
                              require_buffer(device_.allocate_pinned(kPieceBytes, "single layer"),
                                             device_, kPieceBytes, "single layer"));
  RandomKey key;
  key.seed = seed;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) {
    if (std::find(dtypes_.begin(), dtypes_.end(), dtype) == dtypes_.end()) continue;
    ByteCount width = dtype_size_bytes(dtype);
    for (ByteCount at = 0; at < kPieceBytes; at += width) {
      uint32_t word = random_word(key, static_cast<uint64_t>(at / width));
      write_element(dtype, word, vocabulary, piece->host_data() + at);
    }
    for (size_t index = 0; index < buffers_.size(); ++index) {
      if (dtypes_[index] != dtype) continue;
      STAGECOACH_RETURN_IF_ERROR(
          repeat_piece(*run_.stream, piece->view(), buffers_[index]->view()));
    }
    STAGECOACH_RETURN_IF_ERROR(run_.stream->synchronize());
  }
  return Status::ok();
}

}  // namespace stagecoach
