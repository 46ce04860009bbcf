// Text that becomes part of an HTML page. Everything that a file or a user may have written goes through escaped().
#pragma once

#include <string>
#include <string_view>

namespace assay::verify {

// Safe inside an element and inside a quoted attribute: & < > " ' as entities, bytes that are no UTF-8 and control
// characters as U+FFFD. Longer texts than bytes_max are cut before a character, and say so.
std::string escaped(std::string_view text, size_t bytes_max = 2000);

// A number for people: three significant digits, "0", "∞", "NaN".
std::string figure(double x);
std::string factor(double x);  // "3.2", "0.041", "1.2e+05"
std::string seconds_text(double seconds);

// <span class="CLASS">TEXT</span>; text is escaped.
std::string span(std::string_view css_class, std::string_view text);

}  // namespace assay::verify
