(async () => {
  // Unpack Plotly, which travels in this file, then draw each figure once it comes into view.
  const fail = () => document.querySelectorAll(".figure").forEach(e => {
    e.textContent = "This browser cannot draw the figure; the tables hold the numbers.";
    e.style.minHeight = "0";
  });
  try {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent.trim()), c => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.appendChild(script);
  } catch { return fail(); }
  if (!window.Plotly) return fail();

  const roles = { "#000001": "--now", "#000002": "--then", "#000003": "--hot", "#000004": "--line",
                  "#000005": "--band", "#000006": "--ink" };
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const paint = text => text.replace(/#00000[1-6]/g, c => css(roles[c]));
  const merge = (axis, extra) => Object.assign({}, extra, axis);
  const draw = box => {
    const figure = JSON.parse(paint(document.getElementById("figure-" + box.dataset.figure).textContent));
    const layout = Object.assign(figure.layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { color: css("--ink"), family: "system-ui, sans-serif", size: 12 },
    });
    for (const key of Object.keys(layout).filter(k => /^[xy]axis/.test(k)).concat(["xaxis", "yaxis"])) {
      layout[key] = merge(layout[key], { gridcolor: css("--rule"), zerolinecolor: css("--rule"),
                                         linecolor: css("--rule"), fixedrange: true });
      if (key[0] === "x") layout[key].showgrid = layout[key].zeroline = false;
    }
    box.style.minHeight = layout.height + "px";
    Plotly.react(box, figure.data, layout, { displayModeBar: false, responsive: true });
    box.dataset.drawn = "1";
  };
  const boxes = [...document.querySelectorAll(".figure")];
  const seen = new IntersectionObserver(entries => entries.forEach(e => {
    if (e.isIntersecting && !e.target.dataset.drawn) draw(e.target);
  }), { rootMargin: "300px" });
  boxes.forEach(b => seen.observe(b));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change",
    () => boxes.filter(b => b.dataset.drawn).forEach(draw));
  addEventListener("beforeprint", () => boxes.forEach(draw));
})();
