// Early return on an error status, for code that may use Abseil (not the preloaded library).
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define REWIRE_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    absl::Status rewire_status_ = (expr);            \
    if (!rewire_status_.ok()) return rewire_status_; \
  } while (false)

#define REWIRE_CONCAT_INNER(a, b) a##b
#define REWIRE_CONCAT(a, b) REWIRE_CONCAT_INNER(a, b)

#define REWIRE_ASSIGN_OR_RETURN(lhs, expr) \
  REWIRE_ASSIGN_OR_RETURN_INNER(REWIRE_CONCAT(rewire_statusor_, __LINE__), lhs, expr)

// `tmp` is a name and `lhs` may be a declaration, so neither can be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define REWIRE_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return tmp.status();                 \
  lhs = *std::move(tmp)
// NOLINTEND(bugprone-macro-parentheses)
