// The text that tensors' effects are measured on where there is no other: of several kinds, so that no tensor is idle.
#include "assay/diff.h"

namespace assay {

std::string_view effect_text() noexcept {
  static constexpr std::string_view kText =
      R"(The ferry to the island leaves at ten past seven, and in winter it leaves almost empty. Marta had taken it every Monday for eleven years. She knew the
sound of each engine, and she knew that the second one coughed when the water was colder than four degrees. This morning it coughed twice.

"You are late," said the captain, who was not looking at his watch.

"The road was closed," she answered. "A tree came down near the school, and nobody had a saw."

"There is always a saw. People only forget where they put it."

She laughed, because it was true, and went below to where the coffee was. Three other passengers sat there: a doctor with a leather bag, a boy of about twelve
with a violin case, and a man who slept with his hat over his face. The doctor was reading a report. Its first page said that, of 1,284 patients who had been
given the new treatment between March 2014 and June 2019, 1,017 (79.2 %) had recovered within six weeks, against 64.5 % of those who had not. The difference
looked large; whether it was real depended on how the groups had been chosen, and about this the report was silent.

Why does ice float? When most liquids freeze, their molecules move closer together, so the solid is denser than the liquid and sinks. Water is different. Each
molecule can form four hydrogen bonds, and in ice these bonds hold the molecules in an open lattice of hexagons. The same number of molecules therefore takes
about nine per cent more room. A lake freezes from the top down, and the fish below survive the winter under the ice.

To make bread for four people, mix 500 g of flour with 10 g of salt and 7 g of dry yeast. Add 320 ml of warm water, knead for ten minutes, and let the dough
rest until it has doubled. Shape it, wait another half hour, and bake it at 230 degrees for 35 minutes. The loaf is done when it sounds hollow.

def mean(values):
    """The arithmetic mean; an empty list has none."""
    if not values:
        raise ValueError("mean of nothing")
    total = 0.0
    for value in values:
        total += value
    return total / len(values)

The parliament met in the old theatre, since its own building had burned down the year before. The first question on the agenda was the harbour. The second was
the money for the harbour. By midnight the members had agreed on neither, but they had agreed to meet again, which the newspapers of the capital called progress.
One of them, the Evening Post, printed a map on its front page that showed the harbour on the wrong side of the river; the mistake was corrected two days later,
on page nine, under the weather.

If a train travels 240 kilometres in three hours, its average speed is 80 kilometres an hour. If it then stops for thirty minutes and travels another 120
kilometres at 60 kilometres an hour, the whole journey takes five and a half hours, and the average over the journey, the stop included, is about 65.5.

Dear Mr Okafor, thank you for your letter of 3 May. We are sorry to hear that the lamp arrived broken. A new one was sent to you today by parcel post and should
reach you before Friday. Please keep the old one for our driver, who will collect it within the next ten days. With kind regards, Helen Brandt, Customer Service.
)";
  return kText;
}

}  // namespace assay
