#pragma once

#include <string>

#include "core/status.h"

namespace stagecoach {

/// `status` of writing the file `path` that `option` names, as the input-output failure that it is:
/// "resource exhausted" means memory here, and a full disk is no gate. Ok stays ok.
Status output_failure(const std::string& option, const std::string& path, const Status& status);

}  // namespace stagecoach
