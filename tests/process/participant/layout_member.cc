// A program whose state is divided by parallel layouts, for process tests of the C API:
//
//   layout_member BARRIER_FILE STOP_FILE
//
// Each number of slots has another layout (LayoutOf). The value of each element of each version is
// known in advance, so that the whole state is checked at every update. A Barrier in a shared file
// replaces a real job's collectives. The program ends a few steps after STOP_FILE exists, and exits
// with 1 on a wrong element.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/state/plan/layout_file.h"
#include "rewire/rewire.h"
#include "tests/process/participant/barrier.h"

namespace rewire {
namespace {

constexpr uint32_t kPerUpdate = 40503;

// The parallel degrees and ZeRO for each number of slots, from 1.
constexpr const char* kDegrees[] = {
    R"("parallel": {"layers": 4})",
    R"("parallel": {"layers": 4, "tensor": 2, "expert": 2})",
    R"("parallel": {"layers": 4, "data": 2, "spare": 1}, "zero": {"stage": 3, "way": "rows"})",
    R"("parallel": {"layers": 4, "tensor": 2, "pipeline": 2, "virtual_stages": 2})",
    R"("parallel": {"layers": 4, "data": 5}, "zero": {"stage": 1, "way": "buffer", "align": 4})",
    R"("parallel": {"layers": 4, "tensor": 2, "data": 3, "expert": 3, "expert_tensor": 2},
       "zero": {"stage": 2, "way": "blocks", "block": 7})"};

constexpr const char* kTensors = R"("tensors": [
  {"name": "embedding", "shape": [101, 24], "element_bytes": 4, "layer": "first_and_last",
   "split": {"dim": 0, "unit": 8, "padded": true}, "buffer": "ends",
   "optimizer": {"names": ["m"]}},
  {"name": "{layer}.qkv", "shape": [96, 32], "element_bytes": 4, "layer": "each",
   "split": {"dim": 0, "sections": [48, 24, 24]}, "buffer": "layers",
   "optimizer": {"names": ["m", "v"]}},
  {"name": "{layer}.mlp", "shape": [32, 200], "element_bytes": 4, "layer": "each",
   "split": {"dim": 1}, "buffer": "layers", "optimizer": {"names": ["m", "v"]}},
  {"name": "{layer}.experts", "shape": [6, 10, 14], "element_bytes": 4, "layer": "each",
   "experts": 0, "split": {"dim": 2}, "buffer": "experts"},
  {"name": "{layer}.gradient", "shape": [32, 200], "element_bytes": 4, "layer": "each",
   "split": {"dim": 1}, "role": "gradient", "change": "transient", "buffer": "gradients"},
  {"name": "{layer}.mean", "shape": [33], "element_bytes": 4, "layer": "each",
   "change": "volatile", "role": "other"},
  {"name": "scale", "shape": [7], "element_bytes": 4, "change": "volatile", "role": "optimizer",
   "buffer": "ends"}])";

// Returns nullptr for a number of slots that has no layout.
const char* LayoutOf(void*, uint32_t slots) {
  static thread_local std::string text;
  if (slots == 0 || slots > std::size(kDegrees)) return nullptr;
  text = std::string("{") + kDegrees[slots - 1] + ", " + kTensors + "}";
  return text.c_str();
}

// This member's part of a tensor.
struct Part {
  std::string name;
  state::LogicalTensor tensor;
  uint32_t* data = nullptr;
  uint64_t elements = 0;
  std::vector<state::Piece> pieces;
};

struct Program {
  rewireContext_t context = nullptr;
  rewireWorld_t world = {};
  Barrier* barrier = nullptr;
  std::vector<Part> parts;
  uint64_t step = 0;
};

[[noreturn]] void Bad(const std::string& what, uint64_t at, uint64_t step) {
  printf("BAD %s at %llu in step %llu: %s\n", what.c_str(), static_cast<unsigned long long>(at),
         static_cast<unsigned long long>(step), rewireLastError());
  fflush(stdout);
  _exit(1);
}

uint32_t Value(const Part& part, uint64_t element, uint64_t version) {
  uint32_t name = 2166136261U;
  for (const char c : part.name) name = (name ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<uint32_t>(name + element * 2654435761U + version * kPerUpdate);
}

// Calls visit(element, value) for each element that is state: its number in the whole tensor, and
// its place in this member's memory.
template <typename Visit>
void ForEach(const Part& part, const Visit& visit) {
  for (const state::Piece& piece : part.pieces) {
    std::array<uint64_t, state::kMaxDims> at = piece.chunk.begin;
    for (uint64_t n = piece.chunk.elements(); n > 0; --n) {
      uint64_t element = 0;
      uint64_t place = piece.offset;
      for (size_t d = 0; d < piece.chunk.dims; ++d) {
        element = element * part.tensor.shape[d] + at[d];
        place += (at[d] - piece.chunk.begin[d]) * piece.strides[d];
      }
      visit(element, part.data[place]);
      for (size_t d = piece.chunk.dims; d-- > 0;) {
        if (++at[d] < piece.chunk.end[d]) break;
        at[d] = piece.chunk.begin[d];
      }
    }
  }
}

void Fill(Part* part, uint64_t version) {
  ForEach(*part,
          [&](uint64_t element, uint32_t& value) { value = Value(*part, element, version); });
}

void Check(const Program& p, state::Change change, uint64_t version) {
  for (const Part& part : p.parts) {
    if (part.tensor.change != change) continue;
    ForEach(part, [&](uint64_t element, const uint32_t& value) {
      if (value != Value(part, element, version)) Bad(part.name, element, p.step);
    });
  }
}

// Gives each part the elements that the present world's layout says.
void TakePlaces(Program* p, bool registered) {
  const auto file = state::ParseLayout("layout", LayoutOf(nullptr, p->world.slots));
  if (!file.ok()) Bad(file.status().ToString(), 0, p->step);
  const std::vector<state::LogicalTensor>& tensors = file->layout.tensors();
  p->parts.resize(tensors.size());
  for (size_t t = 0; t < tensors.size(); ++t) {
    Part& part = p->parts[t];
    const uint64_t elements = file->layout.ElementsOf(t, p->world.slot);
    if (!registered) {
      part.data = static_cast<uint32_t*>(calloc(elements + 1, 4));
    } else if (part.elements != elements) {
      Bad(part.name + " has another part", part.elements, p->step);
    }
    part.name = tensors[t].name;
    part.tensor = tensors[t];
    part.elements = elements;
    part.pieces = file->layout.PiecesOf(t, p->world.slot);
  }
}

int Update(void* arg) {
  auto* p = static_cast<Program*>(arg);
  Check(*p, state::Change::kTransient, p->step);
  Check(*p, state::Change::kConstant, p->step);
  for (Part& part : p->parts) {
    if (part.tensor.change == state::Change::kConstant) Fill(&part, p->step + 1);
  }
  ++p->step;
  return Wait(p->world, p->barrier->updated, p->step, 50000) ? 0 : 1;
}

void* Allocate(void*, const char*, uint64_t bytes) { return malloc(bytes); }
void Adopt(void* arg, const char* name, void* data, uint64_t begin, uint64_t end) {
  auto* p = static_cast<Program*>(arg);
  for (Part& part : p->parts) {
    if (part.name != name) continue;
    free(part.data);
    part.data = static_cast<uint32_t*>(data);
    part.elements = end - begin;
  }
}
void Discard(void*, const char*, void* data) { free(data); }
void OnWorld(void* arg, const rewireWorld_t* world) {
  auto* p = static_cast<Program*>(arg);
  p->world = *world;
  TakePlaces(p, true);
}

void Register(Program* p, const char* name, uint64_t elements, uint32_t bytes,
              rewireLayout_t layout, state::Change change, void* data) {
  rewireTensor_t t = {};
  t.size = sizeof t;
  t.name = name;
  t.elements = elements;
  t.element_bytes = bytes;
  t.layout = layout;
  t.change = static_cast<rewireChange_t>(change);
  t.data = data;
  if (rewireRegisterTensor(p->context, &t) != rewireSuccess) Bad(name, 0, 0);
}

void SetUp(Program* p) {
  rewireAttachOptions_t options = {sizeof options, 1, 0};
  if (rewireAttach(&options, &p->context) != rewireSuccess) Bad("attach", 0, 0);
  p->world.size = sizeof p->world;
  if (rewireWorld(p->context, &p->world) != rewireSuccess) Bad("world", 0, 0);
  TakePlaces(p, false);
  const rewireParallel_t parallel = {sizeof parallel, 0, 0};
  const rewireCallbacks_t callbacks = {sizeof callbacks, p,       Allocate, Adopt,
                                       Discard,          OnWorld, nullptr,  LayoutOf};
  if (rewireSetParallel(p->context, &parallel, &callbacks) != rewireSuccess) Bad("parallel", 0, 0);
  Register(p, "step", 1, 8, rewireReplicated, state::Change::kVolatile, &p->step);
  // In another order than that of the layout.
  for (auto part = p->parts.rbegin(); part != p->parts.rend(); ++part) {
    if (p->world.joining == 0) Fill(&*part, 0);
    Register(p, part->name.c_str(), part->elements, 4, rewireByLayout, part->tensor.change,
             part->elements == 0 ? nullptr : part->data);
  }
}

void Report(const Program& p, const rewireOutcome_t& outcome) {
  static const char* const kKinds[] = {"continue", "changed", "repeat", "leave"};
  printf("%s epoch %llu slot %u/%u step %llu in %llu out %llu\n", kKinds[outcome.kind],
         static_cast<unsigned long long>(outcome.world.epoch), p.world.slot, p.world.slots,
         static_cast<unsigned long long>(p.step), static_cast<unsigned long long>(outcome.bytes_in),
         static_cast<unsigned long long>(outcome.bytes_out));
  fflush(stdout);
}

void CheckState(const Program& p) {
  Check(p, state::Change::kConstant, p.step);
  Check(p, state::Change::kVolatile, p.step);
}

// The step failed: returns to a version that all survivors can restore.
void Recover(Program* p) {
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  const rewireResult_t result = rewireRecover(p->context, &outcome);
  if (result == rewireUnavailable) return;  // a slow peer is not lost
  if (std::strstr(rewireLastError(), "counts as lost") != nullptr) _exit(3);
  if (result != rewireSuccess) Bad("recover", 0, p->step);
  Report(*p, outcome);
  CheckState(*p);
}

int Train(Program* p, const char* stop_file) {
  for (bool joiner = p->world.joining != 0;; joiner = false) {
    if (!joiner) {
      const uint64_t stop_at = p->barrier->stop_at.load();
      if (stop_at != 0 && p->step >= stop_at) return 0;
      if (stop_at == 0 && p->world.slot == 0 && access(stop_file, F_OK) == 0) {
        p->barrier->stop_at.store(p->step + 10);
      }
      for (Part& part : p->parts) {
        if (part.tensor.change == state::Change::kVolatile) Fill(&part, p->step + 1);
        if (part.tensor.change == state::Change::kTransient) Fill(&part, p->step);
      }
      if (!Wait(p->world, p->barrier->forward, p->step + 1, 2000)) {
        Recover(p);
        continue;
      }
    }
    rewireOutcome_t outcome = {};
    outcome.size = sizeof outcome;
    if (rewireUpdate(p->context, Update, p, &outcome) != rewireSuccess) {
      printf("update failed: %s\n", rewireLastError());
      Recover(p);
      continue;
    }
    if (outcome.kind != rewireContinue) Report(*p, outcome);
    if (outcome.kind == rewireLeave) return 0;
    CheckState(*p);
  }
}

int Main(const char* barrier, const char* stop_file) {
  Program program;
  program.barrier = Barrier::In(barrier);
  if (program.barrier == nullptr) return 2;
  SetUp(&program);
  printf("ready\n");
  fflush(stdout);
  const int status = Train(&program, stop_file);
  printf("done step %llu\n", static_cast<unsigned long long>(program.step));
  fflush(stdout);
  rewireDetach(program.context);
  for (const Part& part : program.parts) free(part.data);
  return status;
}

}  // namespace
}  // namespace rewire

int main(int argc, char** argv) { return argc == 3 ? rewire::Main(argv[1], argv[2]) : 2; }
