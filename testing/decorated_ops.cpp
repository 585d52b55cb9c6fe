#include "testing/decorated_ops.h"

#include "testing/decorated_stream.h"

namespace stagecoach {

Status DecoratedOps::do_run(Stream& stream, const OpCall& call) {
  auto* decorated = dynamic_cast<DecoratedStream*>(&stream);
  if (decorated == nullptr) {
    return invalid_argument("the stream was not made by the decorated device");
  }
  return decorated->run_op(inner_, call);
}

}  // namespace stagecoach
