// Long names in the cells of tables may wrap after "_" and "/" and before "."; what is copied stays the same.
document.addEventListener("DOMContentLoaded", () => {
  for (const code of document.querySelectorAll("article td code, article th code")) {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (const text of texts) {
      const parts = text.data.split(/(?<=[_/])(?=\w)|(?<=\w)(?=\.(?!(?:ya?ml|py|md|json)\b)\w)/);
      if (parts.length > 1) text.replaceWith(...parts.flatMap((part) => [part, document.createElement("wbr")]).slice(0, -1));
    }
  }
});
