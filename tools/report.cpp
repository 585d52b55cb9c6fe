#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>

#include "core/file.h"
#include "core/json.h"
#include "report_parts.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/report_data.h"

namespace stagecoach {

namespace {

void replace_once(std::string& text, std::string_view mark, std::string_view with) {
  size_t at = text.find(mark);
  STAGECOACH_CHECK(at != std::string::npos);
  text.replace(at, mark.size(), with);
}

/// JSON that may stand inside a script element: nothing in it can end the element.
std::string embeddable(const Json& data) {
  std::string text = data.dump();
  std::string safe;
  safe.reserve(text.size());
  for (char letter : text) {
    if (letter == '<') {
      safe += "\\u003c";
    } else {
      safe += letter;
    }
  }
  return safe;
}

std::string make_page(const Json& data) {
  std::string page(report_parts::kPageHtml);
  replace_once(page, "/*STYLE*/", report_parts::kStyleCss);
  replace_once(page, "/*SCRIPT*/", report_parts::kScriptJs);
  replace_once(page, "/*DATA*/", embeddable(data));
  return page;
}

Result<int> run(const std::string& folder, const CommandContext& context) {
  STAGECOACH_ASSIGN_OR_RETURN(Json data, gather_report_data(folder));
  std::string path = folder + "/report.html";
  STAGECOACH_RETURN_IF_ERROR(write_file_atomically(path, make_page(data)));
  int64_t shown = 0, total = 0;
  if (const Json* trace = data.find("trace"); trace != nullptr && trace->is_object()) {
    shown = trace->find("shown")->as_integer();
    total = trace->find("total")->as_integer();
  }
  if (context.json) {
    Json json = Json::object();
    json["report"] = path;
    json["slices_shown"] = shown;
    json["slices_total"] = total;
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{} ({} of {} timeline slices)\n", path, shown, total);
  }
  return kExitOk;
}

}  // namespace

Command make_report_command() {
  auto folder = std::make_shared<std::string>();
  Command command;
  command.name = "report";
  command.summary = "builds report.html (timeline, curves, tables) from a run's folder";
  command.examples = {"stagecoach report out"};
  command.options = {{"DIR", "", "output folder of a training run", folder.get(), true}};
  command.run = [folder](const CommandContext& context) { return run(*folder, context); };
  return command;
}

}  // namespace stagecoach
