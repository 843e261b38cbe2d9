// Text of models and files: shown, never run. The one place that makes elements.

// As divtok.screen.visible: what would act or could not be seen shows as a sign of its own.
function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (sign) => {
    const code = sign.codePointAt(0);
    if (sign === "\n" || sign === "\t" || code === 0x200c || code === 0x200d) return sign;
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

// An element; attributes are ours, children are elements or text that may be anyone's.
function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

const byId = (id) => document.getElementById(id);

// A number for people; a dash where there is none.
function fixed(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "\u2013";
  return value.toFixed(digits).replace("-", "\u2212");
}

const oneLine = (text) =>
  text === null || text === undefined ? "\u2013" : text.split(/\s+/).join(" ").trim();
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// A model's name without its owner or its folder.
const shortName = (name) => name.split("/").pop();
