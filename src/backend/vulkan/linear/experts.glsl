// Which rows a product multiplies (ops/linear/linear.h, ops/linear/expert_linear.h): row r of the weights and row t of x, or for experts those of a pair of
// a token and one of the experts that it was routed to. The shader's push constants have a member `experts`.
#ifndef ASSAY_EXPERTS_GLSL
#define ASSAY_EXPERTS_GLSL

struct Experts {
  Floats routes;  // a row a token: weights of its n_used experts, then their numbers
  uint n_used;    // 0: no experts
  uint has_routes, rows_per_expert, first_row, x_of_pairs;  // x_of_pairs: of each pair its own row, else of each token
};

uint weight_row_of(Experts e, uint pair, uint row) {
  if (e.n_used == 0u) return row;
  const uint rank = pair % e.n_used;
  const uint expert = e.has_routes != 0u ? uint(e.routes.at[pair / e.n_used * 2u * e.n_used + e.n_used + rank]) : rank;
  return expert * e.rows_per_expert + e.first_row + row;
}

uint x_row_of(Experts e, uint pair) { return e.n_used == 0u || e.x_of_pairs != 0u ? pair : pair / e.n_used; }

#endif
