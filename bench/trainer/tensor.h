// Row-major matrices, which are views of one flat array of parameters. Used by the layers and the
// model. Thread-compatible.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <string>
#include <vector>

namespace rewire::trainer {

template <typename Real>
using Matrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename Real>
using MatrixMap = Eigen::Map<Matrix<Real>, Eigen::Aligned16>;
template <typename Real>
using ConstMatrixMap = Eigen::Map<const Matrix<Real>, Eigen::Aligned16>;

// An array whose start has the alignment that MatrixMap requires.
template <typename Real>
using AlignedVector = std::vector<Real, Eigen::aligned_allocator<Real>>;

struct Parameter {
  std::string name;
  int rows = 0;
  int cols = 0;
  uint64_t offset = 0;   // elements, a multiple of 16: every view is aligned
  double deviation = 0;  // of its initial normal distribution; 0: a constant
  double constant = 0;
  bool decays = false;  // weight decay applies

  [[nodiscard]] uint64_t size() const { return static_cast<uint64_t>(rows) * cols; }
};

// An index into the layout, which a layer stores for each of its parameters.
using ParameterId = int;

class ParameterLayout {
 public:
  ParameterId Add(std::string name, int rows, int cols, double deviation, double constant,
                  bool decays) {
    parameters_.push_back({std::move(name), rows, cols, elements_, deviation, constant, decays});
    elements_ += (parameters_.back().size() + 15) / 16 * 16;
    return static_cast<ParameterId>(parameters_.size()) - 1;
  }
  [[nodiscard]] const Parameter& at(ParameterId id) const { return parameters_[id]; }
  [[nodiscard]] const std::vector<Parameter>& all() const { return parameters_; }
  // Size of the flat array, padding included. Padding is zero and stays zero.
  [[nodiscard]] uint64_t elements() const { return elements_; }

 private:
  std::vector<Parameter> parameters_;
  uint64_t elements_ = 0;
};

// Views of the parameters in one flat array, and of their gradients in another of the same layout.
template <typename Real>
struct Weights {
  const ParameterLayout& layout;
  const Real* values;
  [[nodiscard]] ConstMatrixMap<Real> operator[](ParameterId id) const {
    const Parameter& p = layout.at(id);
    return {values + p.offset, p.rows, p.cols};
  }
};
template <typename Real>
struct Gradients {
  const ParameterLayout& layout;
  Real* values;
  [[nodiscard]] MatrixMap<Real> operator[](ParameterId id) const {
    const Parameter& p = layout.at(id);
    return {values + p.offset, p.rows, p.cols};
  }
};

}  // namespace rewire::trainer
