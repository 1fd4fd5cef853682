// Divides the bytes that must cross between nodes over the nodes that have them, so that the
// busiest one sends as little as possible. For plan.cc. Pure; owned by one thread.
//
// Bytes with the same holders are one group. Each group in turn fills up its least loaded holders
// until nothing changes: coordinate descent on the sum of squares of the loads, whose minimum also
// has the least possible maximum, since the loads form the base of a polymatroid (Fujishige,
// "Lexicographically optimal base of a polymatroid with respect to a weight vector", 1980). In
// integers, so that every member gets the same.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace rewire::state {

class NodeShares {
 public:
  using Nodes = std::vector<uint32_t>;  // numbers below `nodes`, ascending, each once

  explicit NodeShares(uint32_t nodes) : loads_(nodes) {}

  // States that one of the holders must send each of these bytes. holders: not empty.
  void Add(const Nodes& holders, uint64_t bytes) {
    groups_[holders].bytes += static_cast<int64_t>(bytes);
  }
  void Divide();

  // Returns the holder that sends the next bytes of the group: the one with most of its share left.
  // Call after Divide(), with holders that Add() had.
  uint32_t Next(const Nodes& holders, uint64_t bytes);

 private:
  struct Left {
    int64_t bytes = 0;
    uint32_t node = 0;
    bool operator<(const Left& other) const {
      return bytes != other.bytes ? bytes < other.bytes : node > other.node;
    }
  };
  struct Group {
    int64_t bytes = 0;
    std::vector<int64_t> shares;  // by holder
    std::vector<Left> left;       // a heap with the most on top
  };

  // Returns how many bytes of the group have another sender now.
  int64_t Fill(const Nodes& holders, Group* group);

  std::vector<int64_t> loads_;  // by node
  std::map<Nodes, Group> groups_;
};

}  // namespace rewire::state
