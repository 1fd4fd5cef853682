#include "reconfig/elastic/participant/parsed_layout.h"

#include <optional>
#include <utility>

#include "reconfig/state/plan/layout_file.h"

namespace rewire::elastic {

absl::StatusOr<const ParsedLayout*> Parsed(const char* text) {
  static thread_local std::optional<ParsedLayout> last;
  if (last && last->text == text) return &*last;
  absl::StatusOr<state::LayoutFile> file = state::ParseLayout("layout", text);
  if (!file.ok()) return file.status();
  last.emplace(ParsedLayout{text, std::move(file->layout), {}});
  for (size_t t = 0; t < last->layout.tensors().size(); ++t) {
    last->tensors[last->layout.tensors()[t].name] = t;
  }
  return &*last;
}

}  // namespace rewire::elastic
