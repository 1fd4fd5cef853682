// rewire_sim [--seed N | --seeds A:B] [--planted NAME] [--print]: runs the simulator by hand, for a
// seed that failed or for a long search. The exit status is 1 if a promise was broken.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tests/sim/planted.h"
#include "tests/sim/simulation.h"

namespace {

int Usage() {
  std::fprintf(stderr, "usage: rewire_sim [--seed N | --seeds A:B] [--planted NAME] [--print]\n");
  return 2;
}

bool Number(std::string_view text, uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t first = 1;
  uint64_t last = 300;
  rewire::sim::SimulationOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--print") {
      options.print = true;
    } else if (arg == "--seed" && Number(value, &first)) {
      last = first;
      ++i;
    } else if ((arg == "--seeds" && value.find(':') != std::string_view::npos &&
                Number(value.substr(0, value.find(':')), &first) &&
                Number(value.substr(value.find(':') + 1), &last)) ||
               (arg == "--planted" && rewire::sim::PlantedBugNamed(value, &options.planted_bug))) {
      ++i;
    } else {
      return Usage();
    }
  }
  uint64_t bad = 0;
  rewire::sim::Result sum;
  uint64_t stopped = 0;
  uint64_t partitioned = 0;
  uint64_t partitioned_swaps = 0;
  uint64_t partitioned_stopped = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    options.seed = seed;
    const rewire::sim::Result r = rewire::sim::Simulation(options).Run();
    for (const std::string& v : r.violations) {
      std::printf("seed %lu: %s\n", static_cast<unsigned long>(seed), v.c_str());
    }
    bad += r.violations.empty() ? 0 : 1;
    sum.swaps += r.swaps;
    sum.boundaries += r.boundaries;
    sum.losses += r.losses;
    sum.leader_restarts += r.leader_restarts;
    sum.versions += r.versions;
    stopped += r.stopped ? 1 : 0;
    if (!r.partitioned) continue;
    ++partitioned;
    partitioned_swaps += r.swaps;
    partitioned_stopped += r.stopped ? 1 : 0;
  }
  std::printf(
      "%lu seeds, %lu broken; %lu swaps, %lu boundaries, %lu losses, %lu leader restarts, "
      "%lu updates, %lu jobs stopped\n",
      static_cast<unsigned long>(last - first + 1), static_cast<unsigned long>(bad),
      static_cast<unsigned long>(sum.swaps), static_cast<unsigned long>(sum.boundaries),
      static_cast<unsigned long>(sum.losses), static_cast<unsigned long>(sum.leader_restarts),
      static_cast<unsigned long>(sum.versions), static_cast<unsigned long>(stopped));
  std::printf("with communicators over part of the members: %lu jobs, %lu swaps, %lu stopped\n",
              static_cast<unsigned long>(partitioned),
              static_cast<unsigned long>(partitioned_swaps),
              static_cast<unsigned long>(partitioned_stopped));
  return bad == 0 ? 0 : 1;
}
