#include "reconfig/elastic/leader/phase.h"

namespace rewire::elastic {

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kForming:
      return "FORMING";
    case Phase::kRecovering:
      return "RECOVERING";
    case Phase::kSteady:
      return "STEADY";
    case Phase::kReserve:
      return "RESERVE";
    case Phase::kPrepare:
      return "PREPARE";
    case Phase::kPropose:
      return "READY";
    case Phase::kArmed:
      return "ARMED";
    case Phase::kAtBoundary:
      return "AT_BOUNDARY";
    case Phase::kCommitting:
      return "VERIFIED";
    case Phase::kCommitted:
      return "COMMITTED";
    case Phase::kRetiring:
      return "RETIRING";
    case Phase::kStopped:
      return "STOPPED";
  }
  return "UNKNOWN";
}

}  // namespace rewire::elastic
