#include "reconfig/state/plan/layout_file.h"

#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "reconfig/state/plan/json_fields.h"

namespace rewire::state {
namespace {

constexpr size_t kMaxTensors = 1 << 22;  // an entry may stand for many

constexpr EnumName<ZeroWay> kWays[] = {{"rows", ZeroWay::kRows},
                                       {"flat", ZeroWay::kFlat},
                                       {"buffer", ZeroWay::kBuffer},
                                       {"blocks", ZeroWay::kBlocks}};
constexpr EnumName<Role> kRoles[] = {{"parameter", Role::kParameter},
                                     {"gradient", Role::kGradient},
                                     {"optimizer", Role::kOptimizer},
                                     {"other", Role::kOther}};
constexpr EnumName<Change> kChanges[] = {{"constant", Change::kConstant},
                                         {"volatile", Change::kVolatile},
                                         {"transient", Change::kTransient}};
constexpr EnumName<Stages> kStages[] = {{"first", Stages::kFirst},
                                        {"last", Stages::kLast},
                                        {"first_and_last", Stages::kFirstAndLast},
                                        {"all", Stages::kAll},
                                        {"every_slot", Stages::kEverySlot},
                                        {"each", Stages::kLayer}};

void Read(JsonFields fields, Parallel* p) {
  fields.Number("tensor", &p->tensor);
  fields.Number("context", &p->context);
  fields.Number("data", &p->data);
  fields.Number("pipeline", &p->pipeline);
  fields.Number("expert", &p->expert);
  fields.Number("expert_tensor", &p->expert_tensor);
  fields.Number("spare", &p->spare);
  fields.Text("order", &p->order);
  fields.Number("virtual_stages", &p->virtual_stages);
  fields.Number("layers", &p->layers);
  fields.Numbers("split", &p->split);
  fields.End();
}

void Read(JsonFields fields, Zero* zero) {
  fields.Number("stage", &zero->stage);
  fields.OneOf("way", kWays, &zero->way);
  fields.Number("block", &zero->block);
  fields.Number("align", &zero->align);
  fields.End();
}

void Read(JsonFields fields, Split* split) {
  fields.Number("dim", &split->dim);
  fields.Numbers("sections", &split->sections);
  fields.Number("unit", &split->unit);
  fields.Boolean("padded", &split->padded);
  fields.End();
}

// The optimizer's tensors of a parameter, which are divided as it is.
struct Moments {
  std::vector<std::string> names;
  uint32_t element_bytes = 4;
};

void Read(JsonFields fields, Moments* moments) {
  fields.Texts("names", &moments->names);
  fields.Number("element_bytes", &moments->element_bytes);
  fields.End();
}

struct TensorEntry {
  LogicalTensor tensor;
  Moments optimizer;
  bool each_layer = false;
};

void Read(JsonFields fields, TensorEntry* entry) {
  LogicalTensor& t = entry->tensor;
  fields.Required("name");
  fields.Required("shape");
  fields.Text("name", &t.name);
  fields.Numbers("shape", &t.shape);
  fields.Number("element_bytes", &t.element_bytes);
  fields.OneOf("change", kChanges, &t.change);
  fields.OneOf("role", kRoles, &t.role);
  fields.Object("split", [&](JsonFields in) { Read(std::move(in), &t.split); });
  fields.Number("experts", &t.experts);
  fields.Text("buffer", &t.buffer);
  fields.Object("optimizer", [&](JsonFields in) { Read(std::move(in), &entry->optimizer); });
  if (fields.IsNumber("layer")) {
    t.stages = Stages::kLayer;
    fields.Number("layer", &t.layer);
  } else {
    fields.OneOf("layer", kStages, &t.stages);
    entry->each_layer = t.stages == Stages::kLayer;
  }
  fields.End();
}

// Appends the tensors that an entry stands for.
void Expand(const TensorEntry& entry, uint32_t layers, std::vector<LogicalTensor>* tensors) {
  const uint32_t count = entry.each_layer ? layers : 1;
  for (uint32_t layer = 0; layer < count; ++layer) {
    LogicalTensor t = entry.tensor;
    if (entry.each_layer) {
      t.layer = layer;
      absl::StrReplaceAll({{"{layer}", absl::StrCat(layer)}}, &t.name);
      absl::StrReplaceAll({{"{layer}", absl::StrCat(layer)}}, &t.buffer);
    }
    tensors->push_back(t);
    for (const std::string& moment : entry.optimizer.names) {
      LogicalTensor of = t;
      of.name = absl::StrCat(t.name, "/", moment);
      of.role = Role::kOptimizer;
      of.element_bytes = entry.optimizer.element_bytes;
      if (!of.buffer.empty()) absl::StrAppend(&of.buffer, "/", moment);
      tensors->push_back(of);
    }
  }
}

}  // namespace

absl::StatusOr<LayoutFile> ParseLayout(const std::string& name, const std::string& text) {
  const JsonText json(name, text);
  const absl::StatusOr<JsonNode> root = json.Parse();
  if (!root.ok()) return root.status();
  absl::Status wrong;
  Parallel parallel;
  Zero zero;
  uint32_t per_node = 0;  // 0: one node
  std::vector<MemberId> members;
  std::vector<std::pair<TensorEntry, size_t>> entries;  // with the place in the text
  JsonFields fields(&json, &*root, &wrong);
  fields.Required("parallel");
  fields.Required("tensors");
  fields.Object("parallel", [&](JsonFields in) { Read(std::move(in), &parallel); });
  fields.Object("zero", [&](JsonFields in) { Read(std::move(in), &zero); });
  fields.Number("slots_per_node", &per_node, 1U);
  fields.Numbers("members", &members);
  fields.Objects("tensors", [&](JsonFields in) {
    entries.emplace_back(TensorEntry(), in.at());
    Read(std::move(in), &entries.back().first);
  });
  fields.End();
  if (!wrong.ok()) return wrong;
  const auto at = [&](const char* field) { return root->Find(field)->at; };
  if (absl::Status status = Check(parallel); !status.ok()) {
    return json.Error(at("parallel"), std::string(status.message()));
  }
  if (absl::Status status = Check(zero); !status.ok()) {
    return json.Error(at("zero"), std::string(status.message()));
  }
  std::vector<LogicalTensor> tensors;
  std::unordered_set<std::string> names;
  for (const auto& [entry, place] : entries) {
    if (entry.each_layer && parallel.layers == 0) {
      return json.Error(place, "layer=\"each\": needs parallel.layers, which is 0");
    }
    const size_t first = tensors.size();
    const uint64_t count =
        (entry.each_layer ? parallel.layers : uint64_t{1}) * (1 + entry.optimizer.names.size());
    if (first + count > kMaxTensors) {
      return json.Error(place,
                        absl::StrCat(first + count, " tensors: must be at most ", kMaxTensors));
    }
    Expand(entry, parallel.layers, &tensors);
    for (size_t i = first; i < tensors.size(); ++i) {
      tensors[i].position = static_cast<uint32_t>(i);
      if (absl::Status status = Check(tensors[i], parallel); !status.ok()) {
        return json.Error(place, std::string(status.message()));
      }
      if (!names.insert(tensors[i].name).second) {
        return json.Error(place, absl::StrCat("tensor ", tensors[i].name,
                                              ": another tensor of the file has this name"));
      }
    }
  }
  absl::StatusOr<ParallelLayout> layout = ParallelLayout::Make(parallel, zero, std::move(tensors));
  if (!layout.ok()) return json.Error(root->at, std::string(layout.status().message()));
  const uint32_t slots = layout->slots();
  const bool given = root->Find("members") != nullptr;
  if (given && members.size() != slots) {
    return json.Error(at("members"), absl::StrCat("members: ", members.size(),
                                                  " numbers: must be the ", slots, " slots"));
  }
  std::vector<Seat> seats;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const MemberId member = given ? members[slot] : slot;
    seats.push_back({member, per_node == 0 ? 0 : member / per_node});
  }
  return LayoutFile{*std::move(layout), std::move(seats), given, per_node};
}

nlohmann::ordered_json ToJson(const LayoutFile& file) {
  const Parallel& p = file.layout.parallel();
  const Zero& zero = file.layout.zero();
  nlohmann::ordered_json out;
  out["parallel"] = {
      {"tensor", p.tensor},     {"context", p.context}, {"data", p.data},
      {"pipeline", p.pipeline}, {"expert", p.expert},   {"expert_tensor", p.expert_tensor},
      {"spare", p.spare},       {"order", p.order},     {"virtual_stages", p.virtual_stages},
      {"layers", p.layers},     {"split", p.split}};
  out["zero"] = {{"stage", zero.stage},
                 {"way", NameOf(kWays, zero.way)},
                 {"block", zero.block},
                 {"align", zero.align}};
  if (file.slots_per_node != 0) out["slots_per_node"] = file.slots_per_node;
  out["members"] = nlohmann::ordered_json::array();
  for (const Seat& seat : file.seats) out["members"].push_back(seat.member);
  out["tensors"] = nlohmann::ordered_json::array();
  for (const LogicalTensor& t : file.layout.tensors()) {
    nlohmann::ordered_json entry = {{"name", t.name},
                                    {"shape", t.shape},
                                    {"element_bytes", t.element_bytes},
                                    {"change", NameOf(kChanges, t.change)},
                                    {"role", NameOf(kRoles, t.role)},
                                    {"split",
                                     {{"dim", t.split.dim},
                                      {"sections", t.split.sections},
                                      {"unit", t.split.unit},
                                      {"padded", t.split.padded}}},
                                    {"experts", t.experts},
                                    {"buffer", t.buffer}};
    if (t.stages == Stages::kLayer) {
      entry["layer"] = t.layer;
    } else {
      entry["layer"] = NameOf(kStages, t.stages);
    }
    out["tensors"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace rewire::state
